package natsq_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/internal/natsserver"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/natsq"
	"github.com/oomfleet/oomfleet/queue/queuetest"
)

// operator is a client with the server's own words, for what operators and
// other programs do to the streams.
func operator(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestConfigValidate(t *testing.T) {
	err := natsq.Config{Identity: natsq.Identity{CertFile: "a"}, Lease: time.Millisecond, MaxTasks: -1}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"no queue URL", "go together", "lease 1ms is shorter than 100ms", "negative"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if err := (natsq.Config{URL: "nats://a:1,nats://b:2"}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestOpenRefusedConnection(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := closed.Addr().String()
	closed.Close()
	_, err = natsq.Open(t.Context(), natsq.Config{URL: "nats://user:secret@" + addr})
	if err == nil {
		t.Fatal("no error")
	}
	if !strings.Contains(err.Error(), "queue at nats://"+addr+" does not answer") || strings.ContainsAny(err.Error(), "\n") {
		t.Errorf("error %q does not name the URL in one sentence", err)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("error %q shows the password", err)
	}
}

// TestRefusesStreams: a stream that can lose work is refused at start,
// with all that is wrong with it.
func TestRefusesStreams(t *testing.T) {
	good := jetstream.StreamConfig{
		Name: natsq.TasksStream, Subjects: []string{"oomfleet.task.>"}, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardNew, MaxMsgs: 10, AllowAtomicPublish: true,
	}
	tests := []struct {
		name string
		set  func(*jetstream.StreamConfig)
		want []string
	}{
		{"as it should be", func(*jetstream.StreamConfig) {}, nil},
		{"old settings", func(c *jetstream.StreamConfig) {
			c.Discard, c.Storage, c.AllowAtomicPublish = jetstream.DiscardOld, jetstream.MemoryStorage, false
		}, []string{"discard policy is DiscardOld", "storage is Memory", "atomic publish is false"}},
		{"keeps acked messages", func(c *jetstream.StreamConfig) { c.Retention = jetstream.LimitsPolicy }, []string{"retention is Limits"}},
		{"no limit", func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 }, []string{"max messages is -1"}},
		{"two limits", func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }, []string{"more than one kind"}},
		{"age limit", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, []string{"more than one kind"}},
		{"other subjects", func(c *jetstream.StreamConfig) { c.Subjects = []string{"tasks.>"} }, []string{"subjects is [tasks.>]"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := server(t, natsserver.Config{})
			cfg := good
			tt.set(&cfg)
			if _, err := operator(t, url).CreateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			q, err := natsq.Open(t.Context(), natsq.Config{URL: url})
			if len(tt.want) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				q.Close()
				return
			}
			if err == nil {
				q.Close()
				t.Fatal("Open: no error")
			}
			for _, want := range append(tt.want, natsq.TasksStream, url) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestRefusesBucket(t *testing.T) {
	url := server(t, natsserver.Config{})
	if _, err := operator(t, url).CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: natsq.PresenceBucket, History: 5}); err != nil {
		t.Fatal(err)
	}
	q, err := natsq.Open(t.Context(), natsq.Config{URL: url})
	if err == nil {
		q.Close()
		t.Fatal("Open: no error")
	}
	if !strings.Contains(err.Error(), "history 5 and marker time 0s") {
		t.Errorf("error %q does not say what is wrong", err)
	}
}

func TestMaxTasksOfExistingStream(t *testing.T) {
	url := server(t, natsserver.Config{})
	limit := func(cfg natsq.Config) int64 {
		t.Helper()
		st, err := open(t, cfg).Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.MaxTasks
	}
	if got := limit(natsq.Config{URL: url, MaxTasks: 50}); got != 50 {
		t.Fatalf("limit %d, want 50", got)
	}
	if got := limit(natsq.Config{URL: url}); got != 50 {
		t.Fatalf("an agent without a limit of its own changed it to %d", got)
	}
	if got := limit(natsq.Config{URL: url, MaxTasks: 80}); got != 80 {
		t.Fatalf("limit %d, want 80", got)
	}
}

// TestRepairsConsumer: a back-off list replaces the lease by its first
// entry, and a limit of deliveries leaves tasks behind for ever.
func TestRepairsConsumer(t *testing.T) {
	ctx := within(t, patience)
	url := server(t, natsserver.Config{})
	q := open(t, natsq.Config{URL: url, Lease: 5 * time.Second})
	task := queuetest.NewTask("1", 1, 7)
	name := "pool-" + string(task.Pool())
	js := operator(t, url)
	_, err := js.CreateConsumer(ctx, natsq.TasksStream, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: "oomfleet.task." + string(task.Pool()) + ".*", AckPolicy: jetstream.AckExplicitPolicy,
		BackOff: []time.Duration{time.Second, 2 * time.Second}, MaxDeliver: 3, MaxAckPending: 2, InactiveThreshold: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Publish(ctx, []proto.Task{task}); err != nil {
		t.Fatal(err)
	}
	d, err := q.Next(ctx, task.Pool())
	if err != nil {
		t.Fatal(err)
	}
	cons, err := js.Consumer(ctx, natsq.TasksStream, name)
	if err != nil {
		t.Fatal(err)
	}
	got := cons.CachedInfo().Config
	if got.AckWait != 5*time.Second || len(got.BackOff) != 0 || got.MaxDeliver != -1 || got.MaxAckPending != natsq.DefaultMaxTasks || got.InactiveThreshold != 0 {
		t.Errorf("consumer %+v was not repaired", got)
	}
	if d.Lease() != 5*time.Second {
		t.Errorf("lease %s, want 5s", d.Lease())
	}
}

func TestLeaseIsNeverShortened(t *testing.T) {
	ctx := within(t, patience)
	url := server(t, natsserver.Config{})
	tasks := queuetest.Tasks("1", 3)
	if _, err := open(t, natsq.Config{URL: url, Lease: 5 * time.Second}).Publish(ctx, tasks); err != nil { // makes the consumer
		t.Fatal(err)
	}
	for _, tt := range []struct{ asked, want time.Duration }{
		{10 * time.Second, 10 * time.Second}, {time.Second, 10 * time.Second}, {20 * time.Second, 20 * time.Second},
	} {
		d, err := open(t, natsq.Config{URL: url, Lease: tt.asked}).Next(ctx, tasks[0].Pool())
		if err != nil {
			t.Fatal(err)
		}
		if d.Lease() != tt.want {
			t.Errorf("asked for %s, lease is %s, want %s", tt.asked, d.Lease(), tt.want)
		}
	}
}

// TestForeignConsumer: filters of a work queue may not overlap, so somebody
// else's consumer shuts the pool out. Waiting would not help: it is an error.
func TestForeignConsumer(t *testing.T) {
	ctx := within(t, patience)
	url := server(t, natsserver.Config{})
	q := open(t, natsq.Config{URL: url})
	if _, err := operator(t, url).CreateConsumer(ctx, natsq.TasksStream, jetstream.ConsumerConfig{
		Durable: "all", FilterSubject: "oomfleet.task.>", AckPolicy: jetstream.AckExplicitPolicy,
	}); err != nil {
		t.Fatal(err)
	}
	_, err := q.Next(ctx, queuetest.NewTask("1", 1, 7).Pool())
	var api *jetstream.APIError
	if !errors.As(err, &api) || ctx.Err() != nil {
		t.Fatalf("Next: %v, want the server's refusal", err)
	}
}

func TestUndecodable(t *testing.T) {
	ctx := within(t, patience)
	url := server(t, natsserver.Config{})
	q := open(t, natsq.Config{URL: url})
	pool := queuetest.NewTask("1", 1, 7).Pool()
	js := operator(t, url)
	for _, subject := range []string{"oomfleet.task." + string(pool) + ".s-odd-1", "oomfleet.result." + string(pool)} {
		if _, err := js.Publish(ctx, subject, []byte(`{"id": 5`)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := q.Next(ctx, pool)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Task(); err == nil || !strings.Contains(err.Error(), "s-odd-1") {
		t.Fatalf("Task: %v, want an error that names it", err)
	}
	if err := d.Drop(ctx, "not a task"); err != nil {
		t.Fatal(err)
	}
	if ids, err := q.Waiting(ctx); err != nil || len(ids) != 0 {
		t.Fatalf("waiting %v, %v after the drop", ids, err)
	}
	rep, err := q.NextReport(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rep.Result(); err == nil {
		t.Fatal("Result: no error")
	}
	if err := rep.Ack(ctx); err != nil {
		t.Fatal(err)
	}
}
