// Checks a published log of nights with the packages that Go's own checksum database
// uses: the signature of the checkpoint, that every night is in the log, and that the
// log of each earlier size is continued by the present one.
//
// Usage: checklog PLACE KEY [KEPT], where PLACE is a published folder or its address, and
// KEPT is the file of a checkpoint that was kept: the log must still have its nights.
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	if len(os.Args) != 3 && len(os.Args) != 4 {
		fail("give the folder of the log or its address, the public key, and perhaps a kept checkpoint")
	}
	place, key := os.Args[1], os.Args[2]
	verifier, err := note.NewVerifier(key)
	check("the key", err)
	signed, err := read(place, "checkpoint")
	check("the checkpoint", err)
	name, size, root := open(signed, verifier)

	tree := tlog.Tree{N: size, Hash: root}
	hashes := tlog.TileHashReader(tree, tiles{place})
	for night := int64(0); night < size; night++ {
		content, err := read(place, fmt.Sprintf("statements/%09d", night))
		check("the statement", err)
		entry := sha256.Sum256(content)
		proof, err := tlog.ProveRecord(size, night, hashes)
		check("an inclusion proof", err)
		err = tlog.CheckRecord(proof, size, root, night, tlog.RecordHash(entry[:]))
		check(fmt.Sprintf("night %d", night), err)
	}
	for earlier := int64(1); earlier < size; earlier++ {
		older, err := tlog.TreeHash(earlier, hashes)
		check("an earlier root", err)
		proof, err := tlog.ProveTree(size, earlier, hashes)
		check("a consistency proof", err)
		err = tlog.CheckTree(proof, size, root, earlier, older)
		check(fmt.Sprintf("the log of %d nights", earlier), err)
	}
	fmt.Printf("%s: %d nights hold\n", name, size)
	if len(os.Args) == 4 {
		kept, err := os.ReadFile(os.Args[3])
		check("the kept checkpoint", err)
		_, keptSize, keptRoot := open(kept, verifier)
		if keptSize > size {
			fail(fmt.Sprintf("the kept checkpoint has %d nights, and the log has %d", keptSize, size))
		}
		proof, err := tlog.ProveTree(size, keptSize, hashes)
		check("a consistency proof", err)
		err = tlog.CheckTree(proof, size, root, keptSize, keptRoot)
		check("the nights of the kept checkpoint", err)
		fmt.Printf("the %d nights of the kept checkpoint are among them\n", keptSize)
	}
}

// open checks the signature of a checkpoint, and returns its name, size and hash.
func open(signed []byte, verifier note.Verifier) (string, int64, tlog.Hash) {
	opened, err := note.Open(signed, note.VerifierList(verifier))
	check("the signature", err)
	lines := strings.Split(opened.Text, "\n")
	if len(lines) < 4 || lines[0] != verifier.Name() {
		fail("the checkpoint is not one of this key's log")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	check("the size", err)
	root, err := tlog.ParseHash(lines[2])
	check("the root", err)
	return lines[0], size, root
}

// tiles reads the tiles of a log by their C2SP names, which leave the height out.
type tiles struct{ place string }

func (t tiles) Height() int { return 8 }

func (t tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	contents := make([][]byte, len(wanted))
	for i, tile := range wanted {
		path := strings.Replace(tile.Path(), "tile/8/", "tile/", 1)
		content, err := read(t.place, path)
		if err != nil {
			return nil, err
		}
		contents[i] = content
	}
	return contents, nil
}

func (t tiles) SaveTiles([]tlog.Tile, [][]byte) {}

// read returns a file of the folder, from the disk or from a web server.
func read(place, path string) ([]byte, error) {
	if !strings.HasPrefix(place, "http://") && !strings.HasPrefix(place, "https://") {
		return os.ReadFile(filepath.Join(place, path))
	}
	answer, err := http.Get(strings.TrimSuffix(place, "/") + "/" + path)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, answer.Status)
	}
	return io.ReadAll(answer.Body)
}

func check(what string, err error) {
	if err != nil {
		fail(fmt.Sprintf("%s: %v", what, err))
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}
