// Command killcheck is a subscriber that tests kill: it writes a line for everything that its handler is told, in the
// form of tests/system/harness/logs.py. Its argument is JSON.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	wormhole "wormhole-pubsub/clients/go"
)

type settings struct {
	Application string  `json:"application"`
	Log         string  `json:"log"`
	Pause       float64 `json:"pause"` // seconds that each callback takes
	Options     struct {
		ID   string   `json:"id"`
		Dial []string `json:"dial"`
	} `json:"options"`
}

func main() {
	var given settings
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		log.Fatal(err)
	}
	file, err := os.OpenFile(given.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	subscriber := &wormhole.Subscriber{
		Application:    given.Application,
		ID:             given.Options.ID,
		Dial:           given.Options.Dial,
		HandlerTimeout: 5 * time.Second,
		Handler:        &recorder{file: file, pause: time.Duration(given.Pause * float64(time.Second)), epochs: make(map[string]uint64)},
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := subscriber.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

type recorder struct {
	file  *os.File
	pause time.Duration

	mu     sync.Mutex
	epochs map[string]uint64
}

// write writes a line with one call, so that it survives kill -9.
func (r *recorder) write(kind, shard string, epoch uint64, fields ...any) error {
	line := fmt.Sprintf("%s\t%.6f\t%s\t%d", kind, float64(time.Now().UnixMicro())/1e6, shard, epoch)
	for _, field := range fields {
		line += fmt.Sprintf("\t%v", field)
	}
	_, err := r.file.WriteString(line + "\n")
	return err
}

func (r *recorder) OnUpdate(_ context.Context, u *wormhole.Update) error {
	time.Sleep(r.pause)
	digest := ""
	if value := u.After.Get("value"); value.Kind() == wormhole.KindBytes {
		digest = fmt.Sprintf("%d:%08x", len(value.Bytes()), crc32.ChecksumIEEE(value.Bytes()))
	}
	bit := map[bool]int{true: 1}
	return r.write("U", u.Shard, u.Epoch, u.Transaction.Number, u.Index, bit[u.EndsTransaction],
		u.Transaction.Position, u.Transaction.CommittedAt.UnixMicro(), bit[u.Replayed], u.Op, u.Table(),
		hex.EncodeToString(u.Key[0].Bytes()), digest)
}

func (r *recorder) OnAssigned(_ context.Context, a wormhole.Assigned) (*wormhole.Kept, error) {
	r.mu.Lock()
	r.epochs[a.Shard] = a.Epoch
	r.mu.Unlock()
	return nil, r.write("A", a.Shard, a.Epoch, a.Marker.Order(), a.Marker.Delivered(), "")
}

func (r *recorder) OnRevoked(_ context.Context, revoked wormhole.Revoked) error {
	return r.write("R", revoked.Shard, revoked.Epoch, strings.Join(strings.Fields(revoked.Cause), " "))
}

func (r *recorder) OnDatamarker(_ context.Context, shard string, marker wormhole.Datamarker) error {
	r.mu.Lock()
	epoch := r.epochs[shard]
	r.mu.Unlock()
	return r.write("M", shard, epoch, marker.Order(), marker.Delivered())
}

func (r *recorder) OnDataLoss(_ context.Context, loss wormhole.DataLoss) (wormhole.LossDecision, error) {
	return wormhole.LossHalt, r.write("L", loss.Shard, loss.Epoch, loss.Kind, loss.FirstMissing, loss.LastMissing, "halt")
}
