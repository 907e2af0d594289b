using System;
using System.Collections.Generic;
using System.Text;

// The example comes here.

class Shop : IShop
{
    public readonly List<string> Booked = new(), Mailed = new();
    public bool BookOnce(Order order)
    {
        if (Booked.Contains(order.Id)) return false;
        Booked.Add(order.Id);
        return true;
    }

    public void Confirm(Order order) => Mailed.Add(order.Id);
}

static class Program
{
    static void Main()
    {
        var shop = new Shop();
        var said = new List<string>();
        foreach (var (id, lap) in new[] { ("1", ""), ("2", "1"), ("2", "1"), ("3", "3") })
        {
            var headers = lap == "" ? null
                : new Dictionary<string, object?> { ["dlq_replay_lap"] = Encoding.UTF8.GetBytes(lap) };
            said.Add(Consumer.Handle(headers, new Order(id, 5), shop) ? "True" : "False");
        }
        Console.WriteLine(string.Join(" ", said));
        Console.WriteLine("booked " + string.Join(" ", shop.Booked));
        Console.WriteLine("mailed " + string.Join(" ", shop.Mailed));
    }
}
