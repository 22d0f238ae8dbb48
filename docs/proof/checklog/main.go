// Checks a published log of nights with the packages that Go's own checksum database
// uses: the signature of the checkpoint, that every night is in the log, and that the
// log of each earlier size is continued by the present one.
//
// Usage: checklog PLACE KEY, where PLACE is a published folder or its address.
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	if len(os.Args) != 3 {
		fail("give the folder of the log or its address, and the public key")
	}
	place, key := os.Args[1], os.Args[2]
	verifier, err := note.NewVerifier(key)
	check("the key", err)
	signed, err := read(place, "checkpoint")
	check("the checkpoint", err)
	opened, err := note.Open(signed, note.VerifierList(verifier))
	check("the signature", err)

	lines := strings.Split(opened.Text, "\n")
	var size int64
	_, err = fmt.Sscan(lines[1], &size)
	check("the size", err)
	root, err := tlog.ParseHash(lines[2])
	check("the root", err)

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
	fmt.Printf("%s: %d nights hold\n", lines[0], size)
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
