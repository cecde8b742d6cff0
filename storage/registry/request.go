package registry

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// RequestLimit is how long a request key may be, in bytes.
const RequestLimit = 64

// Submission is the log entry that made a sweep.
type Submission struct {
	// Submitted is the log entry's time, Index its raft index.
	Submitted time.Time `json:"submitted"`
	Index     uint64    `json:"index"`
	// Request is the key under which a client asked for the sweep; empty for
	// none. It is remembered for as long as its sweep is, which bounds it: the
	// same request again, after an answer that was lost, is that sweep and not
	// another one.
	Request string `json:"request,omitempty"`
}

// Requested is the sweep that a request made; nil for none. It walks through all
// sweeps: submissions are rare.
func (v View) Requested(request string) *Sweep { return requested(v.Sweeps, request) }

func requested(sweeps map[proto.MatrixID]*Sweep, request string) *Sweep {
	if request == "" {
		return nil
	}
	for _, s := range sweeps {
		if s.Request == request { // of one sweep at most
			return s
		}
	}
	return nil
}

// againLocked answers a request that has made its sweep already; false for any
// other command.
func (m *Machine) againLocked(cmd *AddSweep, ids []proto.CellID) (Reply, bool) {
	made := requested(m.sweeps.m, cmd.Request)
	if made == nil {
		return Reply{}, false
	}
	if made.Origin != cmd.Origin || !slices.Equal(made.Cells, ids) {
		return Reply{Refused: fmt.Sprintf("request %s has made sweep %s, which has other cells: use a key for one request only", cmd.Request, made.ID)}, true
	}
	reply := m.countCellsLocked(made.Origin, made.Cells, nil)
	reply.Sweep = made.ID
	return reply, true
}

// refuseRequestKey says why a text cannot be a request key; empty for one that can,
// and for none.
func refuseRequestKey(request string) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	if len(request) > RequestLimit || strings.Trim(request, letters) != "" {
		return fmt.Sprintf("a request key has at most %d of the letters [A-Za-z0-9_-]", RequestLimit)
	}
	return ""
}
