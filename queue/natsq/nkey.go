package natsq

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/oomfleet/oomfleet/internal/secret"
)

// The text form of an nkey is base32 of a prefix, 32 bytes and a CRC-16. The
// form is written out here, in the few lines it takes, since nothing else of the
// nkeys module is needed; the tests let nats.go and nats-server read it.
const (
	prefixSeed = 18 << 3 // "S"
	prefixUser = 20 << 3 // "U"
)

func nkeyText() *base32.Encoding { return base32.StdEncoding.WithPadding(base32.NoPadding) }

// NewNKey draws the key pair of a queue user: the seed stays with whoever is
// that user, the public half goes into the server's configuration.
func NewNKey() (seed secret.Text, public string, err error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return secret.Text{}, "", fmt.Errorf("draw an nkey: %w", err)
	}
	// The seed's kind ("user") is spread over the first two bytes.
	raw := append([]byte{prefixSeed | prefixUser>>5, prefixUser & 31 << 3}, key.Seed()...)
	return secret.Of(withChecksum(raw)), publicNKey(key), nil
}

// publicNKey is the public half of a user's key, which begins with U.
func publicNKey(key ed25519.PrivateKey) string {
	return withChecksum(append([]byte{prefixUser}, key.Public().(ed25519.PublicKey)...))
}

// PublicNKey is the public half of a user's seed.
func PublicNKey(seed secret.Text) (string, error) {
	raw, err := decodeSeed(seed)
	if err != nil {
		return "", err
	}
	return publicNKey(ed25519.NewKeyFromSeed(raw)), nil
}

// decodeSeed reads a user's seed. Its error never repeats it.
func decodeSeed(seed secret.Text) ([]byte, error) {
	raw, err := nkeyText().DecodeString(seed.Reveal())
	const size = 2 + ed25519.SeedSize + 2
	if err != nil || len(raw) != size || raw[0] != prefixSeed|prefixUser>>5 || raw[1] != prefixUser&31<<3 ||
		checksum(raw[:size-2]) != binary.LittleEndian.Uint16(raw[size-2:]) {
		return nil, errors.New("it holds no seed of a user's nkey: one begins with SU and has 58 characters")
	}
	return raw[2 : size-2], nil
}

func withChecksum(raw []byte) string {
	return nkeyText().EncodeToString(binary.LittleEndian.AppendUint16(raw, checksum(raw)))
}

// checksum is CRC-16/XMODEM: polynomial 0x1021, from 0.
func checksum(data []byte) uint16 {
	var sum uint16
	for _, b := range data {
		sum ^= uint16(b) << 8
		for range 8 {
			carry := sum&0x8000 != 0
			if sum <<= 1; carry {
				sum ^= 0x1021
			}
		}
	}
	return sum
}

// EnsureSeed returns the public half of the seed in a file. Without such a file
// it draws a seed and writes it there, for the owner alone.
func EnsureSeed(path string) (public string, err error) {
	seed, err := secret.ReadFile(path)
	if err == nil {
		if public, err = PublicNKey(seed); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		return public, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if seed, public, err = NewNKey(); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("write the seed: %w", err)
	}
	_, err = fmt.Fprintln(f, seed.Reveal())
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("write the seed: %w", err)
	}
	return public, nil
}
