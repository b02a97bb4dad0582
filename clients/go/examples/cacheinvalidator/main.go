// Command cacheinvalidator drops what a cache holds of every row that changes.
//
//	go run ./examples/cacheinvalidator -application cache -dial 127.0.0.1:7490
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	wormhole "wormhole-pubsub/clients/go"
)

// cache stands for yours. A service reads the database and fills it when an entry is missing.
type cache struct {
	mu      sync.Mutex
	entries map[string]string
}

// OnUpdate drops the entry of a row. Dropping it twice does no harm, so an update may come again.
func (c *cache) OnUpdate(_ context.Context, u *wormhole.Update) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch u.Op {
	case wormhole.Truncate, wormhole.DeleteRange: // many rows of a table
		for name := range c.entries {
			if strings.HasPrefix(name, u.Table()+"/") {
				delete(c.entries, name)
			}
		}
	default:
		delete(c.entries, entryOf(u.Table(), u.Key))
		if u.OldKey != nil {
			delete(c.entries, entryOf(u.Table(), u.OldKey))
		}
	}
	log.Print(u)
	return nil
}

// entryOf returns the name of a row's entry.
func entryOf(table string, key []wormhole.Value) string {
	name := table
	for _, value := range key {
		name += "/" + value.String()
	}
	return name
}

func main() {
	application := flag.String("application", "cache", "the application in the publishers' configuration")
	dial := flag.String("dial", "127.0.0.1:7490", "addresses of all publishers of its dataset, with commas")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	subscriber := &wormhole.Subscriber{
		Application: *application,
		Dial:        strings.Split(*dial, ","),
		Handler:     &cache{entries: map[string]string{}},
	}
	if err := subscriber.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
