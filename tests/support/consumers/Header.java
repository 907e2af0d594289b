package org.springframework.messaging.handler.annotation;

public @interface Header {
    String name();
    String defaultValue() default "";
}
