package org.springframework.amqp;

public class AmqpRejectAndDontRequeueException extends RuntimeException {
    public AmqpRejectAndDontRequeueException(String message) {
        super(message);
    }
}
