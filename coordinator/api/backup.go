package api

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/storage/registry"
)

const (
	backupPath  = "/v1/backup"
	restorePath = "/v1/restore"
	// backupType is the media type of a backup: gzip around a registry
	// snapshot (registry.View.WriteBackup).
	backupType = "application/gzip"
	// maxBackup bounds a backup as it is sent, maxUnpacked as it is read.
	maxBackup   = 256 << 20
	maxUnpacked = 4 << 30
	// restoreWithin bounds a restore; it is not broken off with its request.
	restoreWithin = 3 * time.Minute
)

func (s *server) registerBackup(h huma.API, mux *http.ServeMux) {
	mux.HandleFunc("GET "+backupPath, s.backup)
	document(h, plain{"backup", backupPath, "The whole registry as one file", backupType, nil})
	schema := h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[registry.Restored](), true, "Restored")
	h.OpenAPI().AddOperation(&huma.Operation{OperationID: "restore", Method: http.MethodPost, Path: restorePath, Summary: "Replace the registry by a backup",
		Parameters:  []*huma.Param{{Name: "force", In: "query", Schema: &huma.Schema{Type: huma.TypeBoolean}, Description: "replace a registry that is not empty"}},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{backupType: {}}},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}}})
	mux.HandleFunc("POST "+restorePath, s.restore)
}

// backup streams the registry as this replica holds it. What breaks off on the
// way has no end line, and is refused when it is read.
func (s *server) backup(w http.ResponseWriter, r *http.Request) {
	view, at := s.look()
	w.Header().Set("Content-Type", backupType)
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="oomfleet-%d.backup"`, at.AppliedIndex))
	w.Header().Set(headerIndex, strconv.FormatUint(at.AppliedIndex, 10))
	packed := gzip.NewWriter(w)
	if err := errors.Join(view.WriteBackup(packed), packed.Close()); err != nil {
		s.Log.Warn("backup broke off", "error", err)
	}
}

// restore replaces the registry; the leader alone gets here.
func (s *server) restore(w http.ResponseWriter, r *http.Request) {
	force, err := strconv.ParseBool(r.URL.Query().Get("force"))
	if err != nil && r.URL.Query().Get("force") != "" {
		writeProblem(w, problem(http.StatusUnprocessableEntity, CodeBadRequest, "force is true or false"))
		return
	}
	unpacked, err := gzip.NewReader(r.Body)
	if err != nil {
		writeProblem(w, badBackup(err))
		return
	}
	// Whoever asked may go; half a restore is none that anybody wants.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), restoreWithin)
	defer cancel()
	limited := &io.LimitedReader{R: unpacked, N: maxUnpacked}
	done, err := s.Registry.Restore(ctx, limited, force)
	switch {
	case errors.Is(err, registry.ErrNotEmpty):
		writeProblem(w, problem(http.StatusConflict, CodeNotEmpty, "the registry holds sweeps or coefficients already, which a restore would replace: "+
			"restore into a new cluster, or say that all of it may go with --force"))
	case errors.Is(err, registry.ErrSnapshotDamaged), errors.Is(err, registry.ErrSnapshotVersion), broken(err):
		writeProblem(w, badBackup(err))
	case err != nil:
		writeProblem(w, s.problemOf(err).(*Problem))
	default:
		s.Log.Warn("registry was replaced by a backup", "index", done.Index, "backup_index", done.BackupIndex, "cells", done.Cells, "force", force)
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(done)
	}
}

// broken reports whether a file could not be read as gzip to its end.
func broken(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &corrupt)
}

func badBackup(err error) *Problem {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return problem(http.StatusRequestEntityTooLarge, CodeBadRequest, fmt.Sprintf("the backup is larger than %d MiB", maxBackup>>20))
	case errors.Is(err, registry.ErrSnapshotVersion):
		return problem(http.StatusUnprocessableEntity, CodeBadBackup, "the backup was written by another version: restore it with the build that wrote it or a newer one; nothing was changed")
	}
	return problem(http.StatusUnprocessableEntity, CodeBadBackup, "the file is no whole backup: it is cut, altered or of another kind; nothing was changed")
}
