"""What Spark needs to read and write an archive on S3 by Hadoop's S3A: its jars, and the same endpoint and
credentials as all the rest of `dlq`.
"""

from collections.abc import Mapping
from pathlib import Path

from dlq.core.errors import UsageError

_PACKAGES = (
    "org.apache.hadoop:hadoop-aws:{hadoop}",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
    "software.amazon.awssdk:s3:2.35.4",
    "software.amazon.awssdk:s3-transfer-manager:2.35.4",
    "software.amazon.awssdk:sts:2.35.4",
)
# hadoop-aws needs a bundle of all of Amazon's clients, which is hundreds of megabytes.
_EXCLUDED = (
    "software.amazon.awssdk:bundle",
    "org.wildfly.openssl:wildfly-openssl",
    "com.amazonaws:aws-java-sdk-bundle",
)
_PROVIDERS = "org.apache.hadoop.fs.s3a"
_AMAZON = ".amazonaws.com"
_NO_REGION = "aws-global"


def configuration(location: str, given: Mapping[str, str]) -> dict[str, str]:
    """Spark settings for the archive at `location`; none for a folder. `given` are the user's own.

    Keys go to the JVM inside the process and, by Spark's own channel, to the executors; never into an
    argument list. Raises UsageError when there are no credentials.
    """
    if not location.startswith("s3://"):
        return {}
    named = {"spark.jars", "spark.jars.packages"} & set(given)
    return {**_access(), **({} if named else _jars())}


def _access() -> dict[str, str]:
    """Endpoint, region and credentials, as the AWS variables, files and roles say."""
    from botocore.exceptions import BotoCoreError
    from botocore.session import get_session

    session = get_session()
    try:
        found = session.get_credentials()
        place = session.create_client("s3").meta
    except BotoCoreError as error:
        raise UsageError(f"the archive on S3 cannot be reached: {error}") from error
    if found is None:
        raise UsageError(
            "there are no credentials for the archive on S3: set AWS_PROFILE or AWS_ACCESS_KEY_ID"
        )
    keys = found.get_frozen_credentials()
    provider = "TemporaryAWSCredentialsProvider" if keys.token else "SimpleAWSCredentialsProvider"
    settings = {
        "endpoint.region": place.region_name if place.region_name != _NO_REGION else "us-east-1",
        "aws.credentials.provider": f"{_PROVIDERS}.{provider}",
        "access.key": keys.access_key,
        "secret.key": keys.secret_key,
    }
    if keys.token:
        settings["session.token"] = keys.token
    if _AMAZON not in place.endpoint_url:
        settings |= {"endpoint": place.endpoint_url, "path.style.access": "true"}
    return {f"spark.hadoop.fs.s3a.{name}": str(value) for name, value in settings.items() if value}


def _jars() -> dict[str, str]:
    """By their Maven names: Spark fetches them once. hadoop-aws must be of the very Hadoop in PySpark."""
    import pyspark

    jars = Path(str(pyspark.__file__)).with_name("jars")
    versions = [path.stem.rpartition("-")[2] for path in jars.glob("hadoop-client-api-*.jar")]
    if not versions:
        raise UsageError("this Spark has no Hadoop of its own: name S3A's jars in spark.jars ([spark] conf)")
    return {
        "spark.jars.packages": ",".join(name.format(hadoop=versions[0]) for name in _PACKAGES),
        "spark.jars.excludes": ",".join(_EXCLUDED),
    }
