"""Every `dlqDeliveryFailureCause` of every client and broker, and what its verdict must say."""

from typing import Any

THROWABLE = "java.lang.Throwable: "
JMS = "javax.jms.JMSException: "
POLICY = "RedeliveryPolicy {destination = null, collisionAvoidanceFactor = 0.15, maximumRedeliveries = 1, redeliveryDelay = 10}"
CONSUMER = "ID:vm-33407-1795194807825-3:1:1:1"
CONNECTION = "ID:vm-33407-1795194807825-3:1"

TEXTS: list[tuple[str, dict[str, Any]]] = [
    (THROWABLE + f"Suppressing duplicate delivery on connection, consumer {CONSUMER}",
     {"cause": "suppressed_duplicate", "mechanism": "audit", "consumer_id": CONSUMER, "connection_id": CONNECTION}),
    (THROWABLE + f"Duplicate non transacted delivery to {CONSUMER}", {"cause": "suppressed_duplicate", "consumer_id": CONSUMER}),
    (
        THROWABLE + "Duplicate dispatch with transacted redeliver pending on another consumer, "
            f"connection: {CONNECTION}",
        {"cause": "suppressed_duplicate", "consumer_id": None, "connection_id": CONNECTION},
    ),
    (THROWABLE + f"Duplicate delivery to ActiveMQSession {{id={CONNECTION}:1,started=true,closed=false}} x@1",
     {"cause": "suppressed_duplicate", "connection_id": CONNECTION}),
    (THROWABLE + f"Delivery[2] exceeds redelivery policy limit:{POLICY}, cause:null",
     {"cause": "redelivery_exhausted", "mechanism": "redelivery_policy", "attempts": 2, "exception_class": None}),
    (
        THROWABLE + f"Delivery[2] exceeds redelivery policy limit:{POLICY}, "
            "cause:java.lang.IllegalStateException: boom: order 42\nsecond line",
        {"attempts": 2, "exception_class": "java.lang.IllegalStateException"},
    ),
    (THROWABLE + f"Exceeded redelivery policy limit:{POLICY}, cause:java.lang.NullPointerException",
     {"attempts": 2, "exception_class": "java.lang.NullPointerException"}),
    (THROWABLE + f"Exceeded ra redelivery policy limit:{POLICY}", {"mechanism": "redelivery_policy", "attempts": 2}),
    (JMS + "Exceeded RedeliveryPolicy limit: 6 cause: kaboom",
     {"mechanism": "redelivery_policy", "attempts": 7, "exception_message": "kaboom"}),
    (JMS + "Exceeded RedeliveryPolicy limit: 6", {"mechanism": "redelivery_policy", "attempts": 7, "exception_message": None}),
    (JMS + "Exceeded RedeliveryPolicy max redelivery limit: 3",
     {"mechanism": "redelivery_policy", "attempts": 4, "exception_message": None}),
    (THROWABLE + f"Dispatch[2] to {CONSUMER} exceeds redelivery policy limit:{POLICY}",
     {"cause": "redelivery_exhausted", "mechanism": "dispatch_check", "attempts": 2, "consumer_id": CONSUMER}),
    (THROWABLE + f"listener dispatch[2] to {CONSUMER} exceeds redelivery policy limit:{POLICY}",
     {"mechanism": "dispatch_check", "attempts": 2}),
    (THROWABLE + f"dispatch to {CONSUMER} exceeds redelivery policy limit:{POLICY}",
     {"mechanism": "dispatch_check", "attempts": 2}),
    (JMS + f"dispatch to {CONSUMER} exceeds redelivery policy limit:6",
     {"mechanism": "dispatch_check", "attempts": 7, "consumer_id": CONSUMER}),
    (JMS + f"dispatch to {CONSUMER} exceeds RedeliveryPolicy limit: 4", {"mechanism": "dispatch_check", "attempts": 5}),
    (THROWABLE + "duplicate from store for queue://a.b", {"cause": "duplicate_from_store", "mechanism": "store_audit"}),
    (THROWABLE + "duplicate paged in from cursor for queue://a", {"cause": "duplicate_from_store"}),
    (THROWABLE + "duplicate paged in from store for topic://a", {"cause": "duplicate_from_store"}),
    (THROWABLE + f"TopicSubDiscard. ID:{CONSUMER}", {"cause": "overflow", "mechanism": "discard", "consumer_id": CONSUMER}),
    (THROWABLE + f"Subscription discard. ID:{CONSUMER}", {"cause": "overflow", "consumer_id": CONSUMER}),
    (THROWABLE + "Message discarded", {"cause": "overflow", "consumer_id": None}),
    ("org.apache.activemq.ActiveMQMessageFormatException: java.io.UTFDataFormatException",
     {"cause": "unreadable", "mechanism": "format"}),
    ("org.apache.activemq.DestinationDoesNotExistException: The destination temp-queue://x does not exist.",
     {"cause": "unroutable", "mechanism": "none"}),
    ("com.acme.FooException: bar",
     {"cause": "redelivery_exhausted", "exception_class": "com.acme.FooException", "exception_message": "bar"}),
    (THROWABLE + "com.acme.NotOnBroker: bar\nmore", {"cause": "redelivery_exhausted"}),
]  # fmt: skip
