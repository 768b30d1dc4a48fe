package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
)

// pages yields the items of a list that the API returns in pages. Empty values of the query are not sent.
func pages[T any](ctx context.Context, c *Client, path string, query url.Values, list string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for name := range query {
			if query.Get(name) == "" {
				query.Del(name)
			}
		}
		for {
			page, err := fetch[map[string]json.RawMessage](ctx, c, http.MethodGet, path+"?"+query.Encode(), nil)
			var items []T
			var next string
			if err == nil {
				err = json.Unmarshal(page[list], &items)
			}
			if cursor, more := page["nextCursor"]; more && err == nil {
				err = json.Unmarshal(cursor, &next)
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			query.Set("cursor", next)
		}
	}
}
