package main

import (
	"context"
	"encoding/base64"
	"errors"
	"log"
	"os"
	"sync"

	wormhole "wormhole-pubsub/clients/go"
)

const exitCode = 3

// application is the handler of one case.
type application struct {
	*line
	out *printer

	mu      sync.Mutex
	hanging chan struct{} // closed when handlers that hang have to return
	epochs  map[string]uint64
}

func (a *application) resume() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.hanging)
	a.hanging = make(chan struct{})
}

func (a *application) OnUpdate(_ context.Context, u *wormhole.Update) error {
	a.out.print("update", shownUpdate(u))
	do, wait := a.next(u.ID())
	switch do {
	case "raise":
		return errors.New("the case asks for a failure")
	case "hang":
		<-wait
	case "exit":
		os.Exit(exitCode)
	}
	return nil
}

// next returns what the handler does with an update, and what it waits for if it hangs.
func (a *application) next(id string) (do string, wait chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	act := a.Handler[id]
	if act == nil || (act.Times != nil && *act.Times == 0) {
		return "", nil
	}
	if act.Times != nil {
		*act.Times--
	}
	if act.Do == "hang" {
		delete(a.Handler, id)
	}
	return act.Do, a.hanging
}

func (a *application) OnAssigned(_ context.Context, assigned wormhole.Assigned) (*wormhole.Kept, error) {
	a.mu.Lock()
	a.epochs[assigned.Shard] = assigned.Epoch
	a.mu.Unlock()
	a.out.print("assigned", fields{
		"shard": assigned.Shard, "epoch": assigned.Epoch, "marker": shownMarker(assigned.Marker), "move": assigned.Move,
		"rewound": assigned.Rewound, "acknowledged": assigned.Acknowledged, "generation": assigned.Generation,
	})
	have, ok := a.Have[assigned.Shard]
	if !ok {
		return nil, nil
	}
	kept := &wormhole.Kept{Unnumbered: have.Move == nil}
	if have.Move != nil {
		kept.Move = *have.Move
	}
	return kept, kept.Marker.UnmarshalBinary(have.Marker)
}

func (a *application) OnRevoked(_ context.Context, revoked wormhole.Revoked) error {
	a.out.print("revoked", fields{
		"shard": revoked.Shard, "epoch": revoked.Epoch, "marker": shownMarker(revoked.Marker),
	})
	return nil
}

func (a *application) OnDatamarker(_ context.Context, shard string, marker wormhole.Datamarker) error {
	a.mu.Lock()
	epoch := a.epochs[shard]
	a.mu.Unlock()
	a.out.print("datamarker", fields{"shard": shard, "epoch": epoch, "marker": shownMarker(marker)})
	return nil
}

func (a *application) OnRollback(_ context.Context, rollback wormhole.Rollback) error {
	a.out.print("rolled_back", fields{
		"shard": rollback.Shard, "epoch": rollback.Epoch, "marker": shownMarker(rollback.Marker),
	})
	return nil
}

func (a *application) OnDataLoss(_ context.Context, loss wormhole.DataLoss) (wormhole.LossDecision, error) {
	a.out.print("data_loss", fields{
		"shard": loss.Shard, "epoch": loss.Epoch, "kind": loss.Kind.String(), "first_missing": loss.FirstMissing,
		"last_missing": loss.LastMissing, "resume": shownMarker(loss.Resume),
	})
	if a.DataLoss == "continue" {
		return wormhole.LossContinue, nil
	}
	return wormhole.LossHalt, nil
}

func (a *application) OnReplay(_ context.Context, replay wormhole.Replay) error {
	if replay.Begin {
		a.out.print("replay_begin", fields{"shard": replay.Shard, "epoch": replay.Epoch, "latest": replay.Latest})
	} else {
		a.out.print("replay_end", fields{"shard": replay.Shard, "epoch": replay.Epoch})
	}
	return nil
}

func (a *application) OnChunkEnd(_ context.Context, keys wormhole.KeyRange) error {
	a.out.print("chunk_end", fields{
		"shard": keys.Shard, "epoch": keys.Epoch, "table": keys.Schema.Table, "rows": keys.Rows,
		"after": shownKey(keys.After), "until": shownKey(keys.Until),
		"except": shownKeys(keys.Except), "alone": shownKeys(keys.Keys),
	})
	return nil
}

func (a *application) OnScanEnd(_ context.Context, end wormhole.ScanEnd) error {
	a.out.print("scan_end", fields{
		"shard": end.Shard, "epoch": end.Epoch, "table": end.Table, "generation": end.Generation, "rows": end.Rows,
	})
	return nil
}

func (a *application) OnHalted(_ context.Context, halted wormhole.Halted) {
	a.out.print("error", fields{
		"code": "halted", "shard": halted.Shard, "epoch": halted.Epoch, "update": halted.Update,
	})
}

func (a *application) OnRefused(_ context.Context, refused *wormhole.RefusedError) {
	a.out.print("error", fields{"code": refused.Code})
}

// --- what is printed ---

func shownUpdate(u *wormhole.Update) fields {
	shown := fields{
		"shard": u.Shard, "epoch": u.Epoch, "id": u.ID(), "table": u.Table(), "op": u.Op.String(),
		"key": shownKeys([][]wormhole.Value{u.Key})[0], "old_key": shownKey(u.OldKey), "key_end": shownKey(u.KeyEnd),
		"before": shownRow(u.Before), "after": shownRow(u.After), "transaction": u.Transaction.ID(),
		"position": u.Transaction.Position.String(), "index": u.Index, "ends_transaction": u.EndsTransaction,
		"committed_at_us": 0, "replayed": u.Replayed, "too_large": u.TooLarge,
		"entered": u.Mark == wormhole.Entered, "left": u.Mark == wormhole.Left, "generation": u.Generation,
	}
	if at := u.Transaction.CommittedAt; !at.IsZero() {
		shown["committed_at_us"] = at.UnixMicro()
	}
	return shown
}

func shownMarker(marker wormhole.Datamarker) any {
	if marker.IsZero() {
		return nil
	}
	data, err := marker.MarshalBinary()
	if err != nil {
		log.Fatal(err) // it came from a message
	}
	return data
}

func shownRow(row wormhole.Row) any {
	if !row.Exists() {
		return nil
	}
	shown := fields{}
	for name, value := range row.All() {
		shown[name] = shownValue(value)
	}
	return shown
}

func shownKey(key []wormhole.Value) any {
	if len(key) == 0 {
		return nil
	}
	return shownKeys([][]wormhole.Value{key})[0]
}

func shownKeys(keys [][]wormhole.Value) [][]fields {
	shown := make([][]fields, len(keys))
	for i, key := range keys {
		shown[i] = make([]fields, len(key))
		for j, value := range key {
			shown[i][j] = shownValue(value)
		}
	}
	return shown
}

func shownValue(value wormhole.Value) fields {
	shown := fields{"type": value.Kind().String()}
	switch value.Kind() {
	case wormhole.KindNull, wormhole.KindUnavailable:
	case wormhole.KindBytes:
		shown["value"] = value.Bytes() // JSON has bytes in base64
	case wormhole.KindUint:
		shown["type"], shown["value"] = "int", value.String()
	case wormhole.KindDouble:
		shown["value"] = shownDouble(value.String())
	case wormhole.KindEntries:
		pairs := [][2]string{}
		for name, content := range value.Entries() {
			encode := base64.StdEncoding.EncodeToString
			pairs = append(pairs, [2]string{encode([]byte(name)), encode(content)})
		}
		shown["value"] = pairs
	default:
		shown["value"] = value.String()
	}
	return shown
}

func shownDouble(text string) string {
	switch text {
	case "+Inf":
		return "Infinity"
	case "-Inf":
		return "-Infinity"
	default:
		return text
	}
}
