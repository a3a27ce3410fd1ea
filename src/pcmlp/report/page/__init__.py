"""The page: `sections` says what belongs together; `charts`, `maps` and `scores` have what its script draws, `tables`
and `dense` what it says without one, `controls` what a reader can set; `compose` puts them into `page.html` with
`page.css` and `page.js`, and with `watch.js` where the page is served."""
