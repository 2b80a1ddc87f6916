import SalvorHost
import StandardModules

await Tool.run(
  modules: StandardModules.all, commands: [tokenCommand, contractCommand, demoCommand, demoPlainSQLiteCommand])
