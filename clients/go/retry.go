package wormhole

import (
	"cmp"
	"math"
	"time"
)

// RetryPolicy says how often a callback is called, and how long the waits between are. A wait is shortened at random by
// up to half.
type RetryPolicy struct {
	Attempts    int           // with the first one; 0: 8
	FirstWait   time.Duration // doubled with each failure; 0: 100 ms
	LongestWait time.Duration // 0: one minute
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	p.Attempts = cmp.Or(p.Attempts, 8)
	p.FirstWait = cmp.Or(p.FirstWait, 100*time.Millisecond)
	p.LongestWait = cmp.Or(p.LongestWait, time.Minute)
	return p
}

// wait returns how long to wait after this many failures. chance is from 0 to 1.
func (p RetryPolicy) wait(failures int, chance float64) time.Duration {
	longest := math.Min(float64(p.LongestWait), float64(p.FirstWait)*math.Pow(2, float64(min(failures-1, 64))))
	return time.Duration(longest * (1 - chance/2))
}

// retry counts the failures of one shard since its last acknowledgement. It outlives an epoch, because a new one must
// not begin the count anew.
type retry struct {
	policy   RetryPolicy
	failures int
	furthest *place
	// singlyUntil: up to this place several updates are not delivered at once, because one of them fails.
	singlyUntil *place
}

// failed counts a failure, at an update or (nil) elsewhere. It returns whether another try follows. A failure after the
// places of all earlier ones begins a new count, because what failed before has succeeded since.
func (r *retry) failed(at *place) bool {
	if at != nil && (r.furthest == nil || r.furthest.before(*at)) {
		if r.furthest != nil {
			r.failures = 0
		}
		r.furthest = at
	}
	r.failures++
	return r.failures < r.policy.Attempts
}

func (r *retry) reset() { r.failures, r.furthest = 0, nil }
