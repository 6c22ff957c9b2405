// inspect_table.h - what the columns of a CSV file are, for people.
#ifndef CLI_INSPECT_TABLE_H
#define CLI_INSPECT_TABLE_H

// 0 or an exit code after a message.
int inspect_table(const char *path);

#endif // CLI_INSPECT_TABLE_H
