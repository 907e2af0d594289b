"""What selects a message of AMQP 1.0 alone, by what Artemis lists of it."""

from dlq.connectors.activemq.read.isolated import identify_messages


def test_a_dead_letter_has_a_number_of_its_own_and_any_other_its_producers_id() -> None:
    messages = [
        {"messageID": 7, "_AMQ_ORIG_MESSAGE_ID": 3, "userID": "ID:a"},
        {"messageID": 8, "userID": "ID:it's"},
    ]
    assert [(one.core_id, one.name, one.selector) for one in identify_messages(messages)] == [
        (7, "3", "_AMQ_AD IS NOT NULL AND _AMQ_ORIG_MESSAGE_ID = 3"),
        (8, "ID:it's", "_AMQ_AD IS NOT NULL AND AMQUserID = 'ID:it''s'"),
    ]


def test_what_several_have_selects_none_of_them_alone() -> None:
    messages = [{"messageID": 7, "userID": "ID:a"}, {"messageID": 8, "userID": "ID:a"}, {"messageID": 9}]
    assert [one.selector for one in identify_messages(messages)] == [None, None, None]
    assert identify_messages(messages)[2].name == "message 9"
