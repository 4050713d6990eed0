package klamm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// The server limits waits to 60 s.
const callTimeout = 90 * time.Second

// Error is what the control API refuses, or cannot do.
type Error struct {
	// Status is 400 for a wrong argument, 404 if the named thing does not exist, 408 if the time is over, 409 if the
	// broker refuses.
	Status  int    `json:"-"`
	Message string `json:"error"`
	// Code and Name are Kafka's error, with status 409.
	Code int    `json:"code"`
	Name string `json:"name"`
}

func (e *Error) Error() string { return "klamm: " + e.Message }

// Client sends requests to the control API of a server.
type Client struct {
	url, token string
	http       *http.Client
	t          testing.TB
	faults     *[]string
}

// NewClient has the URL and the token of a ready file.
func NewClient(url, token string) *Client {
	return &Client{url: url, token: token, http: &http.Client{Timeout: callTimeout}}
}

// Call sends a request. Options go to the query, of POST to the body; the answer is read into the value at answer unless
// that is nil. What the server refuses is an [*Error].
func (c *Client) Call(method, path string, options, answer any) error {
	content, err := json.Marshal(options)
	if err != nil {
		return err
	}
	var body io.Reader
	if options != nil && method == http.MethodPost {
		body = bytes.NewReader(content)
	} else if options != nil {
		if path, err = withQuery(path, content); err != nil {
			return err
		}
	}
	request, err := http.NewRequest(method, c.url+path, body)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		refused := &Error{Status: response.StatusCode}
		if err := json.Unmarshal(text, refused); err != nil {
			refused.Message = fmt.Sprintf("%s %s: %s", method, path, text)
		}
		return refused
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

func withQuery(path string, options []byte) (string, error) {
	var found map[string]any
	decoder := json.NewDecoder(bytes.NewReader(options))
	decoder.UseNumber()
	if err := decoder.Decode(&found); err != nil {
		return "", err
	}
	query := url.Values{}
	for name, value := range found {
		query.Set(name, fmt.Sprint(value))
	}
	if len(query) == 0 {
		return path, nil
	}
	return path + "?" + query.Encode(), nil
}

func path(words ...string) string {
	escaped := ""
	for _, word := range words {
		// A dot segment would be resolved, not sent.
		escaped += "/" + strings.ReplaceAll(url.PathEscape(word), ".", "%2E")
	}
	return escaped
}

func call[T any](c *Client, method, path string, options any) T {
	if c.t != nil {
		c.t.Helper()
	}
	var answer T
	if err := c.Call(method, path, options, &answer); err != nil {
		if c.t == nil {
			panic(err)
		}
		c.t.Fatal(err)
	}
	return answer
}

// The first of the options that a method takes none or one of.
func only[T any](options []T) any {
	if len(options) == 0 {
		return nil
	}
	return options[0]
}

// Ptr is the address of a value: options have one where 0 is not the same as nothing.
func Ptr[T any](value T) *T { return &value }
