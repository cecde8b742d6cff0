package quota

import (
	"github.com/oomfleet/oomfleet/proto"
)

// Replicas is how many runs of one kind a card holds at once, each with a CUDA
// context of its own.
type Replicas struct {
	Replicas int `json:"replicas"`
	// Card is the card's memory, Taken what it had in use before any run.
	Card  proto.Bytes `json:"card_memory_bytes"`
	Taken proto.Bytes `json:"taken_bytes"`
	// Each is what one run takes of the card; Left what is over.
	Each proto.Bytes `json:"each_bytes"`
	Left proto.Bytes `json:"left_bytes"`
	// WithoutContext is how many there would seem to be room for if only the
	// allocator's memory were counted.
	WithoutContext int `json:"without_context"`
	// At is the recommendation for one run.
	At Recommendation `json:"at"`
	Stamp
}

// ReplicasOn says how many runs fit on a card of so much memory; 0 takes the
// card that the evidence comes from. A run under a process or device quota takes
// that quota; one under an allocator quota takes what it holds outside it too.
// Every error is a *Refusal.
func (a Adviser) ReplicasOn(q Question, card proto.Bytes) (Replicas, error) {
	if card < 0 {
		return Replicas{}, refusef(BadQuestion, "card_memory_bytes is %d, and must not be negative", int64(card))
	}
	r, err := a.Recommend(q)
	if err != nil {
		return Replicas{}, err
	}
	out := Replicas{Card: card, At: r, Each: r.Quota, Stamp: a.At}
	if out.Card == 0 {
		if out.Card = r.CardTotal; out.Card == 0 {
			return Replicas{}, refusef(BadQuestion, "the card's memory is not known from any run: give card_memory_bytes")
		}
	}
	inner := r.Quota
	if q.Kind == proto.QuotaAllocator {
		if r.Outside == 0 {
			return Replicas{}, refusef(NotCovered, "no recording says what a process holds outside the allocator, and each replica pays it: record one")
		}
		out.Each = (r.Quota + r.Outside + outsideMargin).RoundUp(r.Step)
	} else {
		inner = max(r.Step, r.Quota-r.Outside-outsideMargin)
	}
	if out.Each <= 0 || inner <= 0 {
		return Replicas{}, refusef(NotCovered, "what one run takes comes to %d bytes, which divides no card: record the cell again", int64(out.Each))
	}
	s, err := a.scopeOf(q)
	if err != nil {
		return Replicas{}, err
	}
	out.Taken = s.taken()
	room := max(0, out.Card-out.Taken)
	out.Replicas, out.WithoutContext = int(room/out.Each), int(room/inner)
	out.Left = room - proto.Bytes(out.Replicas)*out.Each
	if out.Replicas == 0 {
		return Replicas{}, refusef(NothingFits, "no run fits: one takes %s, and the card has %s for it", out.Each, room)
	}
	return out, nil
}

// taken is what the card had in use before the newest recording began, by its
// own meters; 0 where they do not say.
func (s scope) taken() proto.Bytes {
	var taken proto.Bytes
	var index uint64
	for _, r := range s.records {
		if run := r.Recording(); run != nil && run.Meters.DeviceFreeBefore != nil && run.Meters.DeviceTotal != nil && run.Index >= index {
			taken, index = max(0, *run.Meters.DeviceTotal-*run.Meters.DeviceFreeBefore), run.Index
		}
	}
	return taken
}
