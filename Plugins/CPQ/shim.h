// Debian keeps the header in a folder of its own; elsewhere pkg-config says where it is.
#if __has_include(<postgresql/libpq-fe.h>)
#include <postgresql/libpq-fe.h>
#else
#include <libpq-fe.h>
#endif

// Notices of the server are not for the standard error of the process.
static inline void cpq_ignore_notice(void *closure, const PGresult *result) {
  (void)closure;
  (void)result;
}

static inline void cpq_ignore_notices(PGconn *connection) {
  PQsetNoticeReceiver(connection, cpq_ignore_notice, 0);
}

// Macros with values that Swift does not import as such: the fields of an error.
enum {
  cpq_sqlstate = PG_DIAG_SQLSTATE,
  cpq_primary = PG_DIAG_MESSAGE_PRIMARY,
  cpq_schema = PG_DIAG_SCHEMA_NAME,
  cpq_table = PG_DIAG_TABLE_NAME,
  cpq_column = PG_DIAG_COLUMN_NAME,
  cpq_constraint = PG_DIAG_CONSTRAINT_NAME,
  cpq_context = PG_DIAG_CONTEXT
};
