package trace

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/oomfleet/oomfleet/proto"
)

// Canary puts, reads, lists and deletes a small object with the options that
// traces will use. Call it at start-up: a store that is misconfigured then says
// so before a GPU has worked for nothing. The error names the step that failed
// and, for ErrRefused, the option to change.
func (s *Store) Canary(ctx context.Context) error {
	var random [16]byte
	rand.Read(random[:]) // never fails, see crypto/rand
	content := []byte("oomfleet canary " + hex.EncodeToString(random[:]) + "\n")
	key := canaryPrefix + hex.EncodeToString(random[:]) + ".txt"
	want := Info{Size: proto.Bytes(len(content)), SHA256: DigestOf(content)}
	if err := s.driver.Put(ctx, key, bytes.NewReader(content), want); err != nil {
		return fmt.Errorf("trace store canary: put: %w", err)
	}
	_, err := s.verify(ctx, key, want)
	if err != nil {
		err = fmt.Errorf("trace store canary: read back: %w", err)
	}
	if err == nil {
		err = s.listed(ctx, key)
	}
	if errDelete := s.driver.Delete(ctx, key); errDelete != nil {
		err = errors.Join(err, fmt.Errorf("trace store canary: delete: %w", errDelete))
	}
	return err
}

func (s *Store) listed(ctx context.Context, key string) error {
	for object, err := range s.driver.List(ctx, canaryPrefix) {
		if err != nil {
			return fmt.Errorf("trace store canary: list: %w", err)
		}
		if object.Key == key {
			return nil
		}
	}
	return errors.New("trace store canary: list: the new object is missing")
}

// CanaryPut is Canary for those who may put and read objects and nothing else:
// it stores one small object under the caller's name, the same at every call,
// and reads it back.
func (s *Store) CanaryPut(ctx context.Context, who string) error {
	content := []byte("oomfleet canary of " + who + "\n")
	digest := DigestOf(content)
	if err := s.put(ctx, canaryPrefix+string(digest)+".txt", digest, content); err != nil {
		return fmt.Errorf("trace store canary: put and read back: %w", err)
	}
	return nil
}
