package wormhole

import (
	"context"
	"errors"
	"fmt"
)

// Handler processes the updates of an application.
//
// OnUpdate returns nil once the update is processed. After an error it is called again with the same update, until
// [RetryPolicy] is exhausted. Then the update is parked if the application parks, otherwise the shard halts. ctx is
// cancelled when HandlerTimeout has passed, or when a graceful stop takes too long.
type Handler interface {
	OnUpdate(ctx context.Context, update *Update) error
}

// HandlerFunc is a function as a [Handler].
type HandlerFunc func(ctx context.Context, update *Update) error

// OnUpdate calls f.
func (f HandlerFunc) OnUpdate(ctx context.Context, update *Update) error { return f(ctx, update) }

// BatchHandler is a [Handler] that takes several updates of one shard at once. OnUpdate is not called then. The slice
// must not be kept after the call.
//
// If OnUpdates fails until the retries are exhausted, and the application parks, the updates are delivered one by one,
// to find the one that fails.
type BatchHandler interface {
	OnUpdates(ctx context.Context, updates []*Update) error
}

// DatamarkerHandler is called when every update of the shard before the datamarker is processed. The datamarker is
// acknowledged when OnDatamarker returns nil, so an application that keeps its own stores it here with its state.
type DatamarkerHandler interface {
	OnDatamarker(ctx context.Context, shard string, marker Datamarker) error
}

// AssignedHandler is called before the first update of a shard.
//
// An application that keeps datamarkers with its own state returns the one that it stored last, and the number of the
// move that it stored with it. Others return nil. An [*EpochRefusedError] refuses the shard.
type AssignedHandler interface {
	OnAssigned(ctx context.Context, assigned Assigned) (*Kept, error)
}

// RevokedHandler is called when this process does not have the shard any more. An error is logged.
type RevokedHandler interface {
	OnRevoked(ctx context.Context, revoked Revoked) error
}

// DataLossHandler decides what follows when the log lost a range. Without it the shard halts.
type DataLossHandler interface {
	OnDataLoss(ctx context.Context, loss DataLoss) (LossDecision, error)
}

// ReplayHandler is called where a replay begins and where it ends.
type ReplayHandler interface {
	OnReplay(ctx context.Context, replay Replay) error
}

// ChunkEndHandler is called when every existing row of a range of keys was delivered. A publisher then repairs losses of
// log with single rows in place of whole tables.
type ChunkEndHandler interface {
	OnChunkEnd(ctx context.Context, keys KeyRange) error
}

// ScanEndHandler is called when every existing row of a table was delivered.
type ScanEndHandler interface {
	OnScanEnd(ctx context.Context, end ScanEnd) error
}

// RollbackHandler undoes what the handler did after the last acknowledged datamarker. OnRollback is called before the
// first update of an epoch if the database rolled back a transaction of which a part was delivered. For a Transactional
// subscriber it is also called after a failed callback.
type RollbackHandler interface {
	OnRollback(ctx context.Context, rollback Rollback) error
}

// HaltedHandler is called when a shard halts in this process. The shard stays halted until the process restarts.
type HaltedHandler interface {
	OnHalted(ctx context.Context, halted Halted)
}

// RefusedHandler is called when a publisher does not admit this process. It is dialled again all the same.
type RefusedHandler interface {
	OnRefused(ctx context.Context, refused *RefusedError)
}

// Assigned is a shard that this process receives from now on.
type Assigned struct {
	Application, Dataset, Log, Shard string

	Epoch      uint64
	Generation uint64     // of the shard's last backfill; 0: there was none
	Marker     Datamarker // the stored one: delivery begins there
	// Rewound reports that the marker was set back, and that nothing acknowledged since is stored.
	Rewound bool
	// Move is the number of the last move of the marker that was no acknowledgement, for example by an operator. It only
	// rises. If it is higher than the number that an application stored, its own datamarker is void, and it stores both
	// Marker and Move. 0: there was none.
	Move uint64
	// Acknowledged reports that the marker was acknowledged or moved at some time. An application that keeps its own
	// datamarkers and has none for the shard has lost its state then.
	Acknowledged bool
}

// Kept is a datamarker that an application stored with its own state, and the Move that it stored with it.
type Kept struct {
	Marker Datamarker
	Move   uint64
	// Unnumbered says that the application does not store moves. A move back of the marker then is made again and again
	// until something is acknowledged, and a move forward has no effect.
	Unnumbered bool
}

// Revoked is a shard that this process does not have any more.
type Revoked struct {
	Shard  string
	Epoch  uint64
	Marker Datamarker // the last one that was acknowledged in the epoch; zero if none was
	Cause  string
}

// LossKind is how log was lost. The numbers are those of the protocol.
type LossKind uint8

// The kinds of losses.
const (
	Purged    LossKind = 1 // the log no longer holds the range
	NotLogged LossKind = 2 // the range was written past the log
	Diverged  LossKind = 3 // the log is not the one that the datamarker came from
)

// String returns the name of the kind.
func (k LossKind) String() string {
	names := [...]string{Purged: "purged", NotLogged: "not_logged", Diverged: "diverged"}
	if k == 0 || int(k) >= len(names) {
		return fmt.Sprintf("LossKind(%d)", uint8(k))
	}
	return names[k]
}

// DataLoss is a range of the log that is lost.
type DataLoss struct {
	Shard                     string
	Epoch                     uint64
	Kind                      LossKind
	FirstMissing, LastMissing string     // in the database's own terms, inclusive; empty if unknown
	Resume                    Datamarker // where delivery goes on; zero if unknown
	Message                   string
}

// LossDecision is what follows a [DataLoss].
type LossDecision uint8

// The decisions.
const (
	LossHalt LossDecision = iota // nothing is delivered until an operator decides
	LossContinue
)

// Replay is the begin or the end of a replay.
type Replay struct {
	Shard string
	Epoch uint64
	Begin bool
	// Latest, at the begin: the replay has only the last change of each key. A subscriber refuses it, unless it is
	// StateOnly.
	Latest bool
}

// Rollback says what is undone, and why.
type Rollback struct {
	Shard  string
	Epoch  uint64
	Marker Datamarker // everything after it is undone
	Cause  error      // of a callback, or a [*TransactionRolledBackError]
}

// Halted is a shard whose callbacks are given up.
type Halted struct {
	Shard  string
	Epoch  uint64
	Update string     // id of the update whose callback failed; empty: another callback
	Marker Datamarker // the last one that is acknowledged
	Err    error
}

// TransactionRolledBackError reports that the database rolled back a transaction of which a part was delivered.
type TransactionRolledBackError struct {
	Transaction string
}

func (e *TransactionRolledBackError) Error() string {
	return fmt.Sprintf("the database rolled back transaction %s, of which a part was delivered", e.Transaction)
}

// EpochRefusedError is returned by [AssignedHandler] if the application has stored the epoch Held of the shard, and the
// assigned one is not above it.
type EpochRefusedError struct {
	Held uint64
}

func (e *EpochRefusedError) Error() string {
	return fmt.Sprintf("the application holds the shard in epoch %d", e.Held)
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent wraps an error of a callback that another try would not change: the update is parked, or the shard halts,
// at once.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

func isPermanent(err error) bool {
	var permanent *permanentError
	return errors.As(err, &permanent)
}
