package natsq

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

// reportsInHand is how many reports the leader may hold unacked. More than one
// lets it commit several at once; few enough that a new leader, which gets them
// when their short lease is up, gets all that matters soon.
const reportsInHand = 64

// Report implements queue.Queue. The subject says who reports, pool and agent:
// the server's permissions hold to it, and Result compares.
func (q *Queue) Report(ctx context.Context, r proto.Result) error {
	op, subject := "report result of task "+string(r.Task), resultSubject(r)
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
		msg := &nats.Msg{Subject: subject, Data: data}
		id := reportID(r, data)
		err = q.publish(ctx, msg, jetstream.WithMsgID(id), jetstream.WithExpectStream(ResultsStream))
		if errors.Is(err, jetstream.ErrNoStreamResponse) && !q.cfg.Agent { // nobody listens: the stream is gone
			if err := q.ensure(ctx); err != nil {
				return err
			}
			err = q.publish(ctx, msg, jetstream.WithMsgID(id), jetstream.WithExpectStream(ResultsStream))
		}
		return err
	}, subject)
}

func resultSubject(r proto.Result) string {
	return resultPrefix + string(r.Stack.Pool(r.Origin)) + "." + string(r.Agent)
}

// reportID tells one report from another. The content is in it: the server drops
// what has a known id, whoever sent it first, and all but the content can be
// guessed by another agent that wants a result to be dropped.
func reportID(r proto.Result, data []byte) string {
	sum := sha256.Sum256(data)
	return fmt.Sprintf("%s.%d.%s.%x", r.Task, r.Fence, r.Agent, sum[:16])
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
	if err := checkSender(r.msg.Subject(), res); err != nil {
		return proto.Result{}, err
	}
	return res, nil
}

// checkSender holds what a result says of its sender to the subject it came
// under, which the server let the sender's credential publish to. An agent that
// does not name itself there is of a build before credentials.
func checkSender(subject string, r proto.Result) error {
	pool, agent, named := strings.Cut(strings.TrimPrefix(subject, resultPrefix), ".")
	if pool == string(r.Stack.Pool(r.Origin)) && (!named || agent == string(r.Agent)) {
		return nil
	}
	return fmt.Errorf("%w: the result of task %.80q names agent %.80q of pool %.80s and came from %.80q of pool %.80s",
		queue.ErrForeign, r.Task, r.Agent, r.Stack.Pool(r.Origin), agent, pool)
}

func (r *report) Ack(ctx context.Context) error {
	return r.q.tell(ctx, "ack report", r.msg, wordAck)
}
