package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/oomfleet/oomfleet/storage/registry"
)

// Backup streams the registry as one file; the caller closes it, and looks at it
// with ReadBackup before trusting it. With consistent it is the leader's.
func (c *Client) Backup(ctx context.Context, consistent bool) (io.ReadCloser, error) {
	path := backupPath
	if consistent {
		path += "?" + url.Values{paramConsistent: {"true"}}.Encode()
	}
	answer, err := c.do(ctx, request{method: http.MethodGet, path: path, accept: backupType})
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// Restore replaces the registry by a backup.
func (c *Client) Restore(ctx context.Context, file []byte, force bool) (out registry.Restored, err error) {
	path := restorePath
	if force {
		path += "?force=true"
	}
	answer, err := c.do(ctx, request{method: http.MethodPost, path: path, body: file, kind: backupType, accept: documentType})
	if err != nil {
		return out, err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
		return out, fmt.Errorf("read what was restored: %.300w", err)
	}
	return out, nil
}
