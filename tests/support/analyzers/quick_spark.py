"""Settings of Spark under which a handful of rows takes a cold JVM the least: what it would compile and plan
never repays for them."""

JAVA = "-Xss16m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m"
QUICK = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.buffer.pageSize": "2m",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.join.preferSortMergeJoin": "false",
    "spark.sql.shuffle.partitions": "2",  # two show that order does not matter
}
