// Scores of search results: pages for maintainers come after pages for users.
const FOR_MAINTAINERS =
    /^(design|decisions|measured|changelog|contributing|publishing|performance|candle_differences)/;

// eslint-disable-next-line no-unused-vars
var Scorer = {
    score: ([docname, title, anchor, description, score]) =>
        FOR_MAINTAINERS.test(docname) || docname.startsWith("_modules/") ? score - 100 : score,
    objNameMatch: 11,
    objPartialMatch: 6,
    objPrio: {0: 15, 1: 5, 2: -5},
    objPrioDefault: 0,
    title: 15,
    partialTitle: 7,
    term: 5,
    partialTerm: 2,
};
