package registry

import (
	"io"
	"time"
)

// Restored says what a backup brought back.
type Restored struct {
	// Index is the position at which the backup's content holds from now on,
	// BackupIndex the one at which it was taken.
	Index       uint64 `json:"index"`
	BackupIndex uint64 `json:"backup_index"`
	Sweeps      int    `json:"sweeps"`
	Cells       int    `json:"cells"`
	// Coefficients are groups, the earlier sets of a group not counted.
	Coefficients int `json:"coefficients"`
	Programs     int `json:"programs"`
	// Content is View.Content of what was restored.
	Content string `json:"content_hash"`
}

// WriteBackup writes all but the cluster itself: a backup may be restored into
// a cluster of other coordinators. The form is a snapshot's, so that it has a
// version and a checksum.
func (v View) WriteBackup(w io.Writer) error {
	v.Members = nil
	return v.WriteSnapshot(w)
}

// Content is a hash of what a backup holds: like Hash, without the log position
// and the members. A registry and the one restored from its backup have the
// same.
func (v View) Content() string {
	v.Members, v.AppliedIndex, v.AppliedTime, v.Restored = nil, 0, time.Time{}, 0
	return v.Hash()
}

// Empty reports whether nothing would be lost if v were replaced. Members do
// not count: they stay.
func (v View) Empty() bool {
	return len(v.Sweeps) == 0 && len(v.Records) == 0 && len(v.Coefficients) == 0 && len(v.Programs) == 0
}

// ReadBackup reads what WriteBackup wrote. It fails as Machine.Restore does.
func ReadBackup(r io.Reader) (View, error) {
	m := New()
	if err := m.Restore(r); err != nil {
		return View{}, err
	}
	return m.View(), nil
}

// Replacing is the backup v as it takes the place of now, at position at, which
// is above both. The cluster's members stay, and log time does not run backward.
func (v View) Replacing(now View, at uint64) View {
	v.AppliedIndex, v.Restored, v.Members = at, at, now.Members
	if now.AppliedTime.After(v.AppliedTime) {
		v.AppliedTime = now.AppliedTime
	}
	return v
}
