"""Names as nobody would give them."""

NAMES = [
    "Qwen/Qwen2.5-7B-Instruct",
    '=HYPERLINK("http://evil.example","click")',
    "+cmd|' /C calc'!A0",
    "@SUM(A1:A9)",
    " -2+3",
    "'quoted",
    "a|b | c",
    "[x](javascript:alert(1)) ![i](http://evil.example/i.png)",
    "<script>alert(1)</script> &amp; <b>",
    "**bold** _it_ `code` ~~gone~~ $x_1$ :smiley: @nobody #7",
    "www.evil.example http://evil.example me@evil.example",
    '50%_of {all} \\input{/etc/passwd} ^^41 ~ "x" `y\' -- --- ?` !`',
    "\x1b[31mred\u202eder\x00 line\nbreak\ttab\u2028",
    "數 Größe 🙂",
    "\\",
    "*",
    "[2pt]",
]
