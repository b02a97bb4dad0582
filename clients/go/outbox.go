package wormhole

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

const (
	outMessageBytes  = 2 << 20 // publishers take 4 MiB
	outMessageFrames = 4096    // publishers take 65,536
)

// outbox has the frames that wait to be sent on one stream, in order. Of the progress and the acknowledgements of a
// flow only the newest ones wait. They are sent before the flow's next frame.
type outbox struct {
	frames  []*wirev1.SubscriberFrame
	answers []*answer // in the order in which they began to wait
}

type answer struct {
	flow     *flow
	marker   Datamarker
	progress uint64
}

func (o *outbox) add(frames ...*wirev1.SubscriberFrame) { o.frames = append(o.frames, frames...) }

func (o *outbox) answerOf(f *flow) *answer {
	if f.answer == nil {
		f.answer = &answer{flow: f}
		o.answers = append(o.answers, f.answer)
	}
	return f.answer
}

// flush puts the answers of all flows before the next frame.
func (o *outbox) flush() {
	for _, answer := range o.answers {
		o.flushFlow(answer.flow)
	}
	o.answers = o.answers[:0]
}

// flushFlow puts the answers of one flow before the next frame.
func (o *outbox) flushFlow(f *flow) {
	answer := f.answer
	if answer == nil {
		return
	}
	f.answer = nil
	if !answer.marker.IsZero() {
		ack := &wirev1.Ack{Flow: f.number, Epoch: f.epoch, Marker: answer.marker.message}
		o.add(&wirev1.SubscriberFrame{Kind: &wirev1.SubscriberFrame_Ack{Ack: ack}})
	}
	if answer.progress > 0 {
		f.unsaid = 0
		progress := &wirev1.Progress{Flow: f.number, Epoch: f.epoch, Number: answer.progress}
		o.add(&wirev1.SubscriberFrame{Kind: &wirev1.SubscriberFrame_Progress{Progress: progress}})
	}
}

// take returns the waiting frames as one message, of which a very long one is cut; nil if nothing waits.
func (o *outbox) take() ([]byte, error) {
	o.flush()
	if len(o.frames) == 0 {
		return nil, nil
	}
	count, size := 0, 0
	for count < len(o.frames) && count < outMessageFrames {
		size += proto.Size(o.frames[count])
		if count > 0 && size > outMessageBytes {
			break
		}
		count++
	}
	data, err := proto.Marshal(&wirev1.SubscriberMessage{Frames: o.frames[:count]})
	o.frames = slices.Delete(o.frames, 0, count)
	return data, err
}
