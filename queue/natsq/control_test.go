package natsq_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/internal/natsserver"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/natsq"
	"github.com/oomfleet/oomfleet/queue/queuetest"
)

// TestCredentialFromBeforeListening: a server that was configured before agents
// listened refuses that, and nothing else of the agent's work ends by it.
func TestCredentialFromBeforeListening(t *testing.T) {
	ctx := within(t, patience)
	g := guarded(t, natsserver.Config{}, nil)
	seed, public, err := natsq.NewNKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(g.seed("old"), []byte(seed.Reveal()), 0o600); err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	for _, name := range []string{"coordinator", "old"} {
		if keys[name], err = natsq.EnsureSeed(g.seed(name)); err != nil {
			t.Fatal(err)
		}
	}
	user := natsq.AgentUser(public, natsq.Grant{})
	user.Subscribe = user.Subscribe[:1] // its inbox
	users := filepath.Join(t.TempDir(), "users.conf")
	text := natsq.Authorization([]natsq.User{natsq.CoordinatorUser(keys["coordinator"]), user})
	if err := os.WriteFile(users, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g.url = server(t, natsserver.Config{UsersFile: users})
	coordinator, agent := open(t, g.as("coordinator")), open(t, g.as("old"))
	task := queuetest.NewTask("580.1", 1, 7)
	listened := make(chan error, 1)
	go func() {
		listened <- agent.Listen(ctx, task.Pool(), func(proto.Control) { t.Error("it heard something") })
	}() // joined below
	waited := make(chan error, 1)
	go func() { // joined below; it waits while the server refuses
		d, err := agent.Next(ctx, task.Pool())
		if err == nil {
			err = d.Ack(ctx)
		}
		waited <- err
	}()
	if err := coordinator.Tell(ctx, task.Pool(), proto.Control{Stop: []proto.TaskID{task.ID}, Seen: 9}); err != nil {
		t.Error(err)
	}
	if err := agent.Report(ctx, resultOf(task, "gpu-1")); err != nil {
		t.Error(err)
	}
	if n, err := coordinator.Publish(ctx, []proto.Task{task}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if err := <-waited; err != nil {
		t.Errorf("Next: %v", err)
	}
	agent.Close()
	<-listened
}

// TestListenAcrossRestart: what is said after the server came back is heard.
func TestListenAcrossRestart(t *testing.T) {
	ctx := within(t, patience)
	s := startChild(t)
	coordinator, agent := open(t, natsq.Config{URL: s.url}), open(t, natsq.Config{URL: s.url, Agent: true})
	task := queuetest.NewTask("580.1", 1, 7)
	heard, done := make(chan proto.Control, 100), make(chan error, 1)
	go func() { done <- agent.Listen(ctx, task.Pool(), func(c proto.Control) { heard <- c }) }() // ends with the agent's Close
	say := func(seen proto.Fence) {
		again := time.NewTicker(50 * time.Millisecond)
		defer again.Stop()
		for {
			_ = coordinator.Tell(ctx, task.Pool(), proto.Control{Seen: seen}) // fails while the server is away
			select {
			case c := <-heard:
				if c.Seen == seen {
					return
				}
			case <-again.C:
			case <-ctx.Done():
				t.Fatalf("%d is not heard", seen)
			}
		}
	}
	say(1)
	s.kill()
	s.start()
	say(2)
	agent.Close()
	<-done
}
