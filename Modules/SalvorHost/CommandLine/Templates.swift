/// What `salvor init` writes.
enum Templates {
  static let configuration = """
    // Salvor's configuration: one file for the server and the device. `salvor check` explains what is wrong in it.
    {
      schema: "schema.json5",                     // relative to this file

      server: {
        storage: { module: "sqlite", path: "consolidated.db" },
        listen: { module: "http", address: "127.0.0.1", port: 8484 },
        // "none" believes what a device says of its user and works on this machine only. For anything else:
        //   authentication: { module: "tokens", file: "tokens.json5" },   (salvor token makes one)
        authentication: { module: "none" },
      },

      client: {
        storage: { module: "sqlite", path: "field.db" },
        transport: { module: "http", url: "http://127.0.0.1:8484" },
        credentials: { principal: "anna" },       // with tokens: { token: "${SALVOR_TOKEN}" }
      },
    }

    """

  static let schema = """
    // The tables of both databases. Column types: text, integer, real, blob, boolean, timestamp, json;
    // "?" is nullable, "= value" a default.
    {
      version: 1,
      // serverInitiated: the server tells devices that watch (salvor sync --watch) when a table of the group changes.
      groups: { reference: {}, visits: { serverInitiated: true } },
      tables: {
        // Written on the server only.
        severity: { maintained: "server", group: "reference", primaryKey: "id",
                    columns: { id: "integer", name: "text" } },
        // Written on both sides.
        site: { maintained: "dual", group: "visits", primaryKey: "id",
                columns: { id: "text", name: "text", city: "text?" } },
        visit: { maintained: "dual", group: "visits", primaryKey: "id",
                 columns: { id: "text", site_id: "text", date: "text", severity_id: "integer?", note: "text?" },
                 references: { site_id: { table: "site", onDelete: "cascade" }, severity_id: "severity" } },
        // Never leaves the device.
        draft: { maintained: "client", primaryKey: "id", columns: { id: "text", body: "text?" } },
      },
    }

    """

  static let sample = """
    -- Sample rows for the server: sqlite3 consolidated.db < sample.sql   (after `salvor serve` has made the tables)
    INSERT INTO severity (id, name) VALUES (1, 'minor'), (2, 'significant'), (3, 'crucial');
    INSERT INTO site (id, name, city) VALUES ('s1', 'Harbour Kitchen', 'Toronto'), ('s2', 'Corner Bakery', 'Toronto');
    INSERT INTO visit (id, site_id, date, severity_id, note) VALUES ('v1', 's1', '2026-03-02', 1, 'floor wet');

    """
}
