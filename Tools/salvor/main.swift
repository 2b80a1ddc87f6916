import SQLiteSupport
import SalvorHost
import SalvorHostCommands
import StandardModules

settleSQLite()
await Tool.run(
  modules: StandardModules.all, commands: HostCommands.all + [demoCommand, demoPlainSQLiteCommand])
