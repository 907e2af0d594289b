package main

import (
	"os"
	"strconv"
	"strings"
)

// The example comes here.

type shop struct{ booked, mailed []string }

func (s *shop) BookOnce(order Order) (bool, error) {
	for _, id := range s.booked {
		if id == order.ID {
			return false, nil
		}
	}
	s.booked = append(s.booked, order.ID)
	return true, nil
}

func (s *shop) Confirm(order Order) { s.mailed = append(s.mailed, order.ID) }

func main() {
	s := &shop{}
	word := map[bool]string{true: "True", false: "False"}
	var said []string
	for _, one := range []struct{ id, lap string }{{"1", ""}, {"2", "1"}, {"2", "1"}, {"3", "3"}} {
		headers := map[string]any{}
		if one.lap != "" {
			headers["dlq_replay_lap"] = one.lap
		}
		isDone, _ := Handle(headers, Order{one.id, 5}, s)
		said = append(said, word[isDone])
	}
	os.Stdout.WriteString(strings.Join(said, " ") + "\nbooked " + strings.Join(s.booked, " ") +
		"\nmailed " + strings.Join(s.mailed, " ") + "\n")
}
