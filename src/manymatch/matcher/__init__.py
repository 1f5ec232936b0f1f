"""Two images in, a result out: configuration, `Matcher`, `MatchResult`."""
