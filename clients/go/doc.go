// Package wormhole receives the committed changes of a database from Wormhole's publishers.
//
// A [Subscriber] dials every publisher of its application's dataset. It calls its [Handler] with each update, in the
// order of the log within a shard and at least once, and acknowledges what the handler has processed:
//
//	subscriber := &wormhole.Subscriber{
//		Application: "cache",
//		Dial:        []string{"127.0.0.1:7490"},
//		Handler: wormhole.HandlerFunc(func(ctx context.Context, update *wormhole.Update) error {
//			return cache.Delete(ctx, update.Key[0].Text())
//		}),
//	}
//	err := subscriber.Run(ctx) // until ctx is cancelled
//
// A handler that returns nil has processed the update. One that returns an error is called again after a while.
// Interfaces such as [DatamarkerHandler] are optional: a handler implements those that it needs. Callbacks of one shard
// run one after the other, those of different shards run at the same time.
//
// docs/client-go.md describes the client, and docs/wire.md the protocol that it speaks.
package wormhole
