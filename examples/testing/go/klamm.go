// Package klamm runs a broker for tests.
package klamm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Server is a broker that runs until Stop.
type Server struct {
	Bootstrap string
	control   string
	token     string
	process   *exec.Cmd
}

// Start starts a broker whose files are in folder.
func Start(folder string) (*Server, error) {
	ready := filepath.Join(folder, "ready.json")
	command := os.Getenv("KLAMM")
	if command == "" {
		command = "klamm"
	}
	words := append(strings.Fields(command), "serve", "--ephemeral", "--ready-file", ready)
	process := exec.Command(words[0], words[1:]...)
	process.Stderr = os.Stderr
	if err := process.Start(); err != nil {
		return nil, err
	}
	server := &Server{process: process}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		content, err := os.ReadFile(ready)
		if err != nil {
			continue
		}
		var found struct {
			Listeners      map[string]string
			Control, Token string
		}
		if err := json.Unmarshal(content, &found); err != nil {
			return nil, err
		}
		server.Bootstrap, server.control, server.token = found.Listeners["default"], found.Control, found.Token
		return server, nil
	}
	server.Stop()
	return nil, fmt.Errorf("the broker does not start")
}

// Call sends a request to the control API and reads its answer into the value at answer, unless that is nil.
func (server *Server) Call(method, path string, body, answer any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if body == nil {
		content = nil
	}
	request, err := http.NewRequest(method, server.control+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+server.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, path, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// Stop ends the broker.
func (server *Server) Stop() {
	_ = server.process.Process.Signal(os.Interrupt)
	_ = server.process.Wait()
}
