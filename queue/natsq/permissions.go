package natsq

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/oomfleet/oomfleet/proto"
)

// User is one user of the NATS server, as its configuration has it.
type User struct {
	// NKey is the public half of the user's key; Note says who it is.
	NKey, Note string
	// Publish and Subscribe are all that the user may; both empty is
	// everything in the account.
	Publish, Subscribe []string
}

// Grant is what an agent's credential is for.
type Grant struct {
	// Pools are the agent's stacks: one for each driver that it may run
	// under. None is any pool, for a fleet whose agents trust one another.
	Pools []proto.Pool
	// Agent is the card's agent; empty is any of those pools.
	Agent proto.AgentID
}

// CoordinatorUser may everything: it makes the streams, publishes tasks and
// reads results.
func CoordinatorUser(nkey string) User { return User{NKey: nkey, Note: "a coordinator"} }

// AgentUser may pull the tasks of its own pools, say what became of them, hear
// what coordinators tell those pools, report
// under its own pool and name, and announce itself. It may make, change, list
// or read nothing else: no stream, no other pool's tasks, no results.
func AgentUser(nkey string, g Grant) User {
	u := User{NKey: nkey, Note: "an agent", Subscribe: []string{inboxOf(nkey) + ".>"}}
	agent := string(g.Agent)
	if agent == "" {
		agent = "*"
	}
	pools := g.Pools
	if len(pools) == 0 {
		pools = []proto.Pool{"*"}
	}
	for _, pool := range pools {
		durable := "*"
		if pool != "*" {
			durable = durableOf(pool)
		}
		u.Publish = append(u.Publish, infoSubject(TasksStream, durable), nextSubject(TasksStream, durable),
			"$JS.ACK."+TasksStream+"."+durable+".*.*.*.*.*", resultPrefix+string(pool)+"."+agent)
		u.Subscribe = append(u.Subscribe, controlPrefix+string(pool))
	}
	u.Publish = append(u.Publish, presencePrefix+agent)
	return u
}

// Authorization is the part of a nats-server configuration that lets these
// users in and nobody else.
func Authorization(users []User) string {
	var b strings.Builder
	b.WriteString("authorization {\n  users = [\n")
	for _, u := range users {
		for _, line := range strings.Split(strings.TrimSpace(u.Config()), "\n") {
			b.WriteString("    " + line + "\n")
		}
	}
	b.WriteString("  ]\n}\n")
	return b.String()
}

// Config is one user in the form of a nats-server configuration.
func (u User) Config() string {
	if len(u.Publish)+len(u.Subscribe) == 0 {
		return fmt.Sprintf("{ nkey: %s } # %s\n", u.NKey, u.Note)
	}
	return fmt.Sprintf("{ nkey: %s, permissions: { # %s\n    publish: [%s]\n    subscribe: [%s]\n} }\n", u.NKey, u.Note, quoted(u.Publish), quoted(u.Subscribe))
}

func quoted(subjects []string) string {
	var out []string
	for _, s := range subjects {
		out = append(out, `"`+s+`"`)
	}
	return strings.Join(out, ", ")
}

func infoSubject(stream, durable string) string {
	return "$JS.API.CONSUMER.INFO." + stream + "." + durable
}
func nextSubject(stream, durable string) string {
	return "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + durable
}

// refuse ends the calls that the server does not let this credential make. The
// server says so beside the call, which would else wait for an answer in vain.
func (q *Queue) refuse(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	_, rest, _ := strings.Cut(err.Error(), `"`)
	subject, _, _ := strings.Cut(rest, `"`)
	if strings.HasPrefix(subject, controlPrefix) && q.cfg.Agent {
		// A credential of before agents listened: it works all the same.
		q.cfg.Log.Warn("this credential may not hear coordinators: cancelled runs go on to their end, and draining needs a signal", "subject", subject)
		return
	}
	cause := refused{fmt.Errorf("this credential may not use %s at the queue: use the one of this agent's card and driver, or give it the permission (fleetctl secure nkey prints it)", subject)}
	listening := strings.Contains(err.Error(), "Subscription")
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := range q.waits {
		if listening || w.publishes(subject) {
			w.cancel(cause)
		}
	}
}

func (w *wait) publishes(subject string) bool {
	for _, s := range w.subjects {
		if s == subject {
			return true
		}
	}
	return false
}
