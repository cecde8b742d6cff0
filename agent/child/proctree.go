package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is what /proc says of one process.
type process struct {
	pid    int
	parent int
	// started is the start time in clock ticks since boot (stat, field 22).
	started uint64
	// zombie: it has ended and holds nothing but its entry.
	zombie bool
}

// readProcess reads /proc/<pid>/stat.
func readProcess(pid int) (process, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, err
	}
	return parseStat(pid, stat)
}

// parseStat reads the text of a stat file. The command's name may hold anything,
// spaces and brackets too, so fields are counted from its last bracket.
func parseStat(pid int, stat []byte) (process, error) {
	_, after, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	fields := strings.Fields(string(after))
	if !ok || len(fields) < 20 {
		return process{}, fmt.Errorf("stat of process %d has %d fields", pid, len(fields))
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return process{}, fmt.Errorf("parent of process %d: %w", pid, err)
	}
	started, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return process{}, fmt.Errorf("start of process %d: %w", pid, err)
	}
	return process{pid: pid, parent: parent, started: started, zombie: fields[0] == "Z"}, nil
}

// processes reads every process that exists now, by id. Those that end while
// it reads are left out. (/proc/<pid>/task/*/children would be shorter, but
// kernels without CONFIG_PROC_CHILDREN exist.)
func processes() (map[int]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := make(map[int]process, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil {
			all[pid] = p
		}
	}
	return all, nil
}

// descendants returns everything below root, root itself excluded.
func descendants(root int) ([]process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	children := make(map[int][]int, len(all))
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p.pid)
	}
	var found []process
	for next := children[root]; len(next) > 0; next = next[1:] {
		found = append(found, all[next[0]])
		next = append(next, children[next[0]]...)
	}
	return found, nil
}

// isBelow reports whether pid is root or a descendant of it, as of now.
func isBelow(pid, root int) bool {
	for pid > 1 {
		if pid == root {
			return true
		}
		p, err := readProcess(pid)
		if err != nil {
			return false
		}
		pid = p.parent
	}
	return false
}

// killMarked ends every process whose initial environment holds entry. It is
// for the descendants of a guard that was killed: they belong to init then, and
// only this mark still tells them. It looks again until it finds none, since
// one may fork while it looks; the bound is for one that cannot die.
func killMarked(entry string) {
	for range 100 {
		all, err := processes()
		if err != nil {
			return
		}
		found := false
		for pid := range all {
			env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
			if err != nil || pid == os.Getpid() {
				continue
			}
			if bytes.Contains(append([]byte{0}, env...), []byte("\x00"+entry+"\x00")) {
				found = unix.Kill(pid, unix.SIGKILL) == nil || found
			}
		}
		if !found {
			return
		}
	}
}
