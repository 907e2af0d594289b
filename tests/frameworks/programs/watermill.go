// Handlers of Watermill on RabbitMQ (amqp) or Kafka (kafka) that fail, panic, or cannot read a message; the poison
// queue gets it after the retries. Or a plain client of RabbitMQ at the private place of a rehearsal (LAB_PLACE), which
// refuses the failures that it has not fixed (LAB_BROKEN).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/rabbitmq/amqp091-go"
)

var (
	address    = os.Getenv("LAB_URL")
	orders     = os.Getenv("LAB_PREFIX") + "orders"
	poisoned   = os.Getenv("LAB_PREFIX") + "orders.poisoned"
	letters    = strings.Fields(os.Getenv("LAB_LETTERS"))
	isMended   = os.Args[1] == "mended"
	onceFailed = map[string]bool{}
	logger     = watermill.NewStdLoggerWithOut(os.Stderr, false, false)
)

type seen struct {
	Event   string           `json:"event"`
	Letter  string           `json:"letter"`
	Body    string           `json:"body"`
	Headers message.Metadata `json:"headers"`
}

// take prints that a letter is in a handler's hands, and fails as it shall.
func take(letter string, received *message.Message) error {
	way, kind, _ := strings.Cut(letter, ".")
	event := "failed"
	if isMended {
		event = "handled"
		if kind == "hiccup" && !onceFailed[letter] {
			onceFailed[letter] = true
			event = "hiccup"
		}
	}
	line, _ := json.Marshal(seen{event, letter, string(received.Payload), received.Metadata})
	fmt.Println(string(line))
	switch {
	case event == "handled":
		return nil
	case way == "panicked" && event == "failed":
		panic("the price is stale")
	}
	return errors.New("the price is stale")
}

func pay(received *message.Message) error {
	var order struct{ Letter string }
	if err := json.Unmarshal(received.Payload, &order); err != nil && !isMended {
		return fmt.Errorf("cannot unmarshal an order: %w", err)
	}
	return take(received.Metadata.Get("letter"), received)
}

// connected gives both ends of one broker.
func connected(broker string) (message.Publisher, message.Subscriber) {
	if broker == "amqp" {
		config := amqp.NewDurableQueueConfig(address)
		return must(amqp.NewPublisher(config, logger)), must(amqp.NewSubscriber(config, logger))
	}
	brokers, marshaler := []string{address}, kafka.DefaultMarshaler{}
	settings := kafka.DefaultSaramaSubscriberConfig()
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	publisher := must(kafka.NewPublisher(kafka.PublisherConfig{Brokers: brokers, Marshaler: marshaler}, logger))
	return publisher, must(kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: brokers, Unmarshaler: marshaler, OverwriteSaramaConfig: settings,
		ConsumerGroup:          os.Getenv("LAB_PREFIX") + "billing",
		InitializeTopicDetails: &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1},
	}, logger))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func rehearse() {
	broken := strings.Fields(os.Getenv("LAB_BROKEN"))
	channel := must(must(amqp091.Dial(address)).Channel())
	for order := range must(channel.Consume(os.Getenv("LAB_PLACE"), "", false, false, false, false, nil)) {
		if slices.Contains(broken, string(order.Body)) {
			must(0, order.Nack(false, false))
		} else {
			must(0, order.Ack(false))
		}
	}
}

func main() {
	if os.Args[1] == "rehearsed" {
		rehearse()
		return
	}
	publisher, subscriber := connected(os.Args[2])
	for _, topic := range []string{orders, poisoned} {
		if initializer, ok := subscriber.(message.SubscribeInitializer); ok {
			must(0, initializer.SubscribeInitialize(topic))
		}
	}
	router := must(message.NewRouter(message.RouterConfig{}, logger))
	retry := middleware.Retry{MaxRetries: 2, InitialInterval: time.Millisecond, Logger: logger}
	router.AddMiddleware(must(middleware.PoisonQueue(publisher, poisoned)), retry.Middleware, middleware.Recoverer)
	router.AddNoPublisherHandler("pay", orders, subscriber, pay)
	if !isMended {
		for _, letter := range letters {
			payload, _ := json.Marshal(map[string]string{"letter": letter})
			if strings.HasPrefix(letter, "unread.") {
				payload = []byte("no json")
			}
			order := message.NewMessage(watermill.NewUUID(), payload)
			order.Metadata.Set("letter", letter)
			must(0, publisher.Publish(orders, order))
		}
	}
	// In order: what was handled is committed.
	ended, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	must(0, router.Run(ended))
}
