// Tlogcheck looks at a log of audit seals with the eyes of others: torchwood, which knows C2SP's tiles, checkpoints and
// cosignatures, and golang.org/x/mod, whose Merkle tree the Go checksum database has.
//
//	tlogcheck check URL LOG_VKEY WITNESS_NAME WITNESS_SEED KEPT_CHECKPOINT [PROOF...]
//	tlogcheck tree …                the same, and of all entries only the last one
//	tlogcheck cosign NAME SEED < CHECKPOINT
//
// A proof is a tlog-proof of an entry, or the request to a witness, which proves that the log has only grown.
package main

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type keys struct {
	log, witness note.Verifier
}

func main() {
	var err error
	switch {
	case len(os.Args) >= 7 && (os.Args[1] == "check" || os.Args[1] == "tree"):
		err = check(os.Args[1] == "check", os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6], os.Args[7:])
	case len(os.Args) == 4 && os.Args[1] == "cosign":
		err = cosign(os.Args[2], os.Args[3])
	default:
		err = errors.New("tlogcheck check|tree|cosign")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func witnessOf(name, seed string) (*torchwood.CosignatureSigner, error) {
	data, err := hex.DecodeString(seed)
	if err != nil {
		return nil, err
	}
	return torchwood.NewCosignatureSigner(name, ed25519.NewKeyFromSeed(data))
}

// open returns the checkpoint of a note that both the log and the witness have signed.
func (k keys) open(data []byte) (torchwood.Checkpoint, error) {
	opened, err := note.Open(data, note.VerifierList(k.log, k.witness))
	if err != nil {
		return torchwood.Checkpoint{}, err
	}
	if len(opened.Sigs) != 2 {
		return torchwood.Checkpoint{}, fmt.Errorf("%d of 2 have signed", len(opened.Sigs))
	}
	return torchwood.ParseCheckpoint(opened.Text)
}

func check(all bool, url, logKey, witnessName, witnessSeed, keptFile string, proofs []string) error {
	log, err := note.NewVerifier(logKey)
	if err != nil {
		return err
	}
	witness, err := witnessOf(witnessName, witnessSeed)
	if err != nil {
		return err
	}
	k := keys{log, witness.Verifier()}
	data, err := os.ReadFile(keptFile)
	if err != nil {
		return err
	}
	kept, err := k.open(data)
	if err != nil {
		return fmt.Errorf("%s: %w", keptFile, err)
	}

	ctx := context.Background()
	tiles, err := torchwood.NewTileFetcher(url)
	if err != nil {
		return err
	}
	data, err = tiles.ReadEndpoint(ctx, "checkpoint")
	if err != nil {
		return err
	}
	// Which of the two has signed the newest one is no matter: the kept one pins what is before it.
	opened, err := note.Open(data, note.VerifierList(k.log, k.witness))
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	now, err := torchwood.ParseCheckpoint(opened.Text)
	if err != nil {
		return err
	}
	if err := grown(ctx, tiles, now, kept); err != nil {
		return err
	}
	client, err := torchwood.NewClient(tiles)
	if err != nil {
		return err
	}
	first := int64(0)
	if !all {
		first = now.N - 1
	}
	for index := first; index < now.N; index++ {
		entry, _, err := client.Entry(ctx, now.Tree, index)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", entry)
	}
	for _, file := range proofs {
		if err := k.checkProof(file, kept); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func grown(ctx context.Context, tiles torchwood.TileReader, now, kept torchwood.Checkpoint) error {
	if now.Origin != kept.Origin {
		return fmt.Errorf("the log is %s, not %s", now.Origin, kept.Origin)
	}
	if now.N < kept.N {
		return fmt.Errorf("the log has %d entries, and had %d", now.N, kept.N)
	}
	hashes := torchwood.TileHashReaderWithContext(ctx, now.Tree, tiles)
	proof, err := tlog.ProveTree(now.N, kept.N, hashes)
	if err != nil {
		return err
	}
	return tlog.CheckTree(proof, now.N, now.Hash, kept.N, kept.Hash)
}

func (k keys) checkProof(file string, kept torchwood.Checkpoint) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, signed, _ := strings.Cut(string(data), "\n\n")
	checkpoint, err := k.open([]byte(signed))
	if err != nil {
		return err
	}
	lines := strings.Split(head, "\n")
	if lines[0] != "c2sp.org/tlog-proof@v1" {
		hashes, err := hashesOf(lines[1:])
		if err != nil {
			return err
		}
		return tlog.CheckTree(hashes, checkpoint.N, checkpoint.Hash, kept.N, kept.Hash)
	}
	extra, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(lines[1], "extra "))
	if err != nil {
		return err
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[2], "index "), 10, 64)
	if err != nil {
		return err
	}
	hashes, err := hashesOf(lines[3:])
	if err != nil {
		return err
	}
	entry, _, _ := strings.Cut(string(extra), "\n")
	return tlog.CheckRecord(hashes, checkpoint.N, checkpoint.Hash, index, tlog.RecordHash([]byte(entry)))
}

func hashesOf(lines []string) ([]tlog.Hash, error) {
	var hashes []tlog.Hash
	for _, line := range lines {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return nil, err
		}
		hashes = append(hashes, hash)
	}
	return hashes, nil
}

func cosign(name, seed string) error {
	witness, err := witnessOf(name, seed)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	text, _, _ := strings.Cut(string(data), "\n\n")
	signed, err := note.Sign(&note.Note{Text: text + "\n"}, witness)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(signed)
	return err
}
