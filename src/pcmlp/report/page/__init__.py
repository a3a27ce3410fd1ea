"""The page: `sections` says what belongs together, `charts`, `maps` and `scores` are what its script draws, `tables` and
`dense` what it says without one, `compose` puts them into `page.html` with `page.css` and `page.js`."""
