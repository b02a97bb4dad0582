// Command updaterate is a subscriber that benchmarks/languages.py measures: it reads every value of so many updates, and
// prints in how many seconds. Its arguments are the publisher's address and the number of updates.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"strconv"
	"syscall"
	"time"

	wormhole "wormhole-pubsub/clients/go"
)

type counter struct {
	left   int
	values int
	first  time.Time
	last   time.Time
	done   context.CancelFunc
}

func (c *counter) OnUpdate(ctx context.Context, u *wormhole.Update) error {
	return c.OnUpdates(ctx, []*wormhole.Update{u})
}

func (c *counter) OnUpdates(_ context.Context, updates []*wormhole.Update) error {
	if c.first.IsZero() {
		c.first = time.Now()
	}
	for _, update := range updates {
		for _, value := range update.After.Values() {
			if value.Any() != nil {
				c.values++
			}
		}
	}
	c.last = time.Now()
	if c.left -= len(updates); c.left <= 0 {
		c.done()
	}
	return nil
}

func main() {
	count, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	ctx, done := context.WithCancel(context.Background())
	c := &counter{left: count, done: done}
	subscriber := &wormhole.Subscriber{Application: "app0", ID: "s", Dial: []string{os.Args[1]}, Handler: c}
	if _, err := os.Stdout.WriteString("ready\n"); err != nil {
		log.Fatal(err)
	}
	if err := subscriber.Run(ctx); err != nil {
		log.Fatal(err)
	}
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	seconds := func(t syscall.Timeval) float64 { return time.Duration(t.Nano()).Seconds() }
	err = json.NewEncoder(os.Stdout).Encode(map[string]any{
		"seconds": []float64{c.last.Sub(c.first).Seconds()},
		"values":  []int{c.values},
		"cpu_s":   seconds(used.Utime) + seconds(used.Stime),
	})
	if err != nil {
		log.Fatal(err)
	}
}
