package natsq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

// reportsInHand is how many reports the leader may hold unacked. More than one
// lets it commit several at once; few enough that a new leader, which gets them
// when their short lease is up, gets all that matters soon.
const reportsInHand = 64

// Report implements queue.Queue.
func (q *Queue) Report(ctx context.Context, r proto.Result) error {
	op := "report result of task " + string(r.Task)
	return q.call(ctx, op, func(ctx context.Context) error {
		for _, t := range []struct{ what, text string }{{"task id", string(r.Task)}, {"agent id", string(r.Agent)}} {
			if err := checkToken(t.what, t.text); err != nil {
				return err
			}
		}
		data, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if err := q.checkSize("result of task "+string(r.Task), len(data)); err != nil {
			return err
		}
		msg := &nats.Msg{Subject: resultPrefix + string(r.Stack.Pool(r.Origin)), Data: data}
		id := fmt.Sprintf("%s.%d.%s", r.Task, r.Fence, r.Agent)
		_, err = q.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id), jetstream.WithExpectStream(ResultsStream))
		if errors.Is(err, jetstream.ErrNoStreamResponse) { // nobody listens: the stream is gone
			if err := q.ensure(ctx); err != nil {
				return err
			}
			_, err = q.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id), jetstream.WithExpectStream(ResultsStream))
		}
		return publishError(err)
	})
}

func (q *Queue) resultSource() source {
	return source{stream: ResultsStream, durable: "intake", filter: resultPrefix + ">", lease: q.cfg.ReportLease, maxAckPending: reportsInHand}
}

// NextReport implements queue.Queue.
func (q *Queue) NextReport(ctx context.Context) (queue.Report, error) {
	msg, _, err := q.pull(ctx, q.resultSource())
	if err != nil {
		return nil, fmt.Errorf("next report: %w", err)
	}
	return &report{q: q, msg: msg}, nil
}

// report implements queue.Report.
type report struct {
	q   *Queue
	msg jetstream.Msg
}

func (r *report) Result() (proto.Result, error) {
	var res proto.Result
	if err := json.Unmarshal(r.msg.Data(), &res); err != nil {
		return proto.Result{}, fmt.Errorf("decode result: %w", err)
	}
	return res, nil
}

func (r *report) Ack(ctx context.Context) error {
	return r.q.tell(ctx, "ack report", r.msg, wordAck)
}
