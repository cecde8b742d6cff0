package raftnode

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// askByte begins a connection to the raft port on which nodes ask each other how
// they stand. Raft's own calls begin with small numbers; a build that does not
// know this one closes the connection. With TLS it is as guarded as raft.
const askByte = 0xF0

// askLimit bounds a question, waiting included.
const askLimit = 2 * time.Second

// question asks a node how it stands, once it has applied At. Late is whether the
// asker does without the state's hash where that is not there in time; a build
// that does not know it waits for the hash.
type question struct {
	At   uint64 `json:"at,omitempty"`
	Late bool   `json:"hash_may_be_late,omitempty"`
}

// Standing of a node, as it says itself.
type standing struct {
	ID      string        `json:"id"`
	State   string        `json:"state"`
	Leader  string        `json:"leader"`
	Formed  bool          `json:"formed"` // it has a list of members
	Applied uint64        `json:"applied_index"`
	Hash    string        `json:"state_hash"` // at Applied; empty where it is late
	Age     time.Duration `json:"age_ns"`
	Ready   bool          `json:"ready"`
	// Applies is the newest command version of its build; 0 is a build that
	// does not say, and applies 1.
	Applies int `json:"applies,omitempty"`
	// Trouble is what a person has to do for it to go on; empty for nothing.
	Trouble string `json:"trouble,omitempty"`
}

// stand is how this node stands, once it has applied q.At or a second has passed.
func (n *Node) stand(ctx context.Context, q question) standing {
	if q.At > 0 {
		limit := time.NewTimer(askLimit / 2)
		defer limit.Stop()
		select {
		case <-n.Changed(q.At - 1):
		case <-limit.C:
		case <-ctx.Done():
		}
	}
	wait := askLimit
	if q.Late {
		wait = hashWait
	}
	view := n.View()
	age, ready := n.Standing()
	out := standing{ID: n.cfg.ID, State: n.raft.State().String(), Leader: n.LeaderID(), Applied: view.AppliedIndex, Hash: n.group.hashes.of(ctx, view, wait), Age: age, Ready: ready, Applies: n.cfg.applies(),
		Trouble: n.group.unwritten.trouble(n.cfg.DataDir)}
	if future := n.raft.GetConfiguration(); future.Error() == nil {
		out.Formed = len(future.Configuration().Servers) > 0
	}
	return out
}

// answer reads one question and answers it; begun is what of it was read.
func (s *stream) answer(conn net.Conn, begun []byte) {
	stand := s.stand.Load()
	if stand == nil {
		return // not open yet
	}
	if err := conn.SetDeadline(time.Now().Add(askLimit)); err != nil {
		return
	}
	var q question
	line, err := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(begun), io.LimitReader(conn, 4<<10)), 1<<10).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &q) != nil {
		return
	}
	_ = json.NewEncoder(conn).Encode((*stand)(s.ctx, q)) // who asked sees the connection end
}

// ask asks the node at an address.
func (n *Node) ask(ctx context.Context, at raft.ServerAddress, q question) (out standing, err error) {
	conn, err := n.stream.Dial(at, askLimit)
	if err != nil {
		return out, err
	}
	defer conn.Close()
	end, ok := ctx.Deadline()
	if limit := time.Now().Add(askLimit); !ok || end.After(limit) {
		end = limit
	}
	if err := conn.SetDeadline(end); err != nil {
		return out, err
	}
	text, err := json.Marshal(q)
	if err != nil {
		return out, err
	}
	if _, err := conn.Write(append(append([]byte{askByte}, text...), '\n')); err != nil {
		return out, fmt.Errorf("ask %s: %w", at, err)
	}
	if err := json.NewDecoder(io.LimitReader(conn, 64<<10)).Decode(&out); err != nil {
		return out, fmt.Errorf("the answer of %s: %w", at, err)
	}
	return out, nil
}
