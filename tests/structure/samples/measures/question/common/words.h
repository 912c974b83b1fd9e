/* Who takes only needs no place. What is left goes (where it
 * should). Which of them? `which` is a command, "e.g. what" is none; whose end is it (Where is it?) when
 * where_text() says so. Where.
 */
int where; /* who may include whom */
const char *text = "/* What a string has is no comment */";
// Whoever reads this
/* which(1) finds a program. Whole days. What_not is a name. */
