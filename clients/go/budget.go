package wormhole

import (
	"fmt"
	"sync"
)

// What a stream and a flow take without names and lists, roughly.
const (
	streamBytes  = 128 << 10
	flowBytes    = 12 << 10
	schemaBytes  = 1 << 10
	columnBytes  = 160
	waitingBytes = 128 // a datamarker or a notice that waits, without its texts
)

// budget bounds the memory that all publishers together make this process use. No stream waits for it: if something
// does not fit, the publisher that uses the most loses its stream, so it cannot use the memory of another one.
type budget struct {
	limit int
	what  string

	mu       sync.Mutex
	used     int
	accounts map[*account]struct{}
}

// account is the share of one stream. end ends the stream when another stream needs its memory.
type account struct {
	budget *budget
	owner  string
	end    func(error)

	held   int
	closed bool
}

func newBudget(limit int, what string) *budget {
	return &budget{limit: limit, what: what, accounts: make(map[*account]struct{})}
}

func (b *budget) open(owner string, end func(error)) *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &account{budget: b, owner: owner, end: end}
	b.accounts[a] = struct{}{}
	return a
}

// charge counts size more bytes. The error says that this publisher has to stop.
func (a *account) charge(size int, what string) error {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.closed {
		return nil
	}
	a.held += size
	b.used += size
	for b.used > b.limit {
		victim, held := b.largest()
		err := fmt.Errorf("%s does not fit: this publisher makes the subscriber keep %d bytes of %s, and all publishers "+
			"together may take %d", what, held, b.what, b.limit)
		if victim.owner == a.owner {
			a.held -= size
			b.used -= size
			return err
		}
		b.forget(victim)
		go victim.end(err) // it takes the lock of its stream
	}
	return nil
}

// largest returns the largest account of the owner that holds the most.
func (b *budget) largest() (largest *account, held int) {
	sums := make(map[string]int)
	for a := range b.accounts {
		sums[a.owner] += a.held
		held = max(held, sums[a.owner])
	}
	for a := range b.accounts {
		if sums[a.owner] == held && (largest == nil || a.held > largest.held) {
			largest = a
		}
	}
	return largest, held
}

func (b *budget) forget(a *account) {
	b.used -= a.held
	a.held, a.closed = 0, true
	delete(b.accounts, a)
}

func (a *account) release(size int) {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	if !a.closed {
		a.held -= size
		a.budget.used -= size
	}
}

func (a *account) close() {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	if !a.closed {
		a.budget.forget(a)
	}
}
