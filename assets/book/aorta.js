// Colours blocks of aorta in the book, with the highlight.js that mdBook brings. A test compares the words with the
// tables of the program.
(() => {
  const words = {
    keyword: 'after and at buffer def draw else expect for group if in kernel let mesh meta metric not on or over param phase preset require setup step stream teardown use when',
    type: 'f64 f32 f16 bf16 e4m3 e5m2 i64 i32 i8 u8',
    literal: 'false true',
  };
  const keyword = words.keyword.split(' ').join('|');
  const language = () => ({
    name: 'aorta',
    keywords: words,
    contains: [
      { className: 'comment', begin: '//', end: '$' },
      { className: 'string', begin: '"""', end: '"""' },
      { className: 'string', begin: '"(\\\\.|[^"\\\\\\n])*"' },
      { className: 'number', begin: '\\b\\d[\\d_]*(\\.\\d+)?([eE][-+]?\\d+)?([A-Za-z]+(/s)?|%)?' },
      // The label of an operation: `load: copy(x -> y)`.
      { className: 'title', begin: '[A-Za-z_]\\w*(\\[[^\\]]*\\])?(?=:\\s*[A-Za-z_][\\w.]*\\()' },
      // An operation or a function.
      { className: 'built_in', begin: `\\b(?!(?:${keyword})\\b)[A-Za-z_][\\w.]*(?=\\()` },
    ],
  });
  hljs.registerLanguage('aorta', language);
  const highlight = hljs.highlightElement || hljs.highlightBlock;
  document.querySelectorAll('code.language-aorta').forEach((block) => highlight(block));
})();
