import java.util.*;
record Order(String id, int amount) {}
class Orders {
    final Set<String> booked = new TreeSet<>();
    boolean bookOnce(Order order) { return booked.add(order.id()); }
}
class Mail {
    final List<String> sent = new ArrayList<>();
    void confirm(Order order) { sent.add(order.id()); }
}
